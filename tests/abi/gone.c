/* A library that plugins are linked with and that is not found at run time. */
int abi_gone(void);

int abi_gone(void)
{
    return 0;
}
