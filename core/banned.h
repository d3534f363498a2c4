/* Calls that have no safe use here, refused by the compiler.  Force-included
 * into every file of the server, after the headers that declare them. */
#ifndef SEAM_BANNED_H
#define SEAM_BANNED_H

#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef alloca

#pragma GCC poison strcpy strcat sprintf vsprintf gets strtok alloca system
#pragma GCC poison atoi atol atoll atof

#endif
