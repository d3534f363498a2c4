/* The values of "format" that are supported, as regular expressions.  Each
 * matches strings of that format only, though not always all of them. */
#include "core/grammar/schema.h"

#define DATE                                                       \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])" \
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"                       \
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"                                \
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])"                \
    "|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?" \
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define BYTE  "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define HEX   "[0-9a-fA-F]{1,4}"
#define UNIT  "[a-zA-Z0-9_+-]+"
#define PCHAR "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})"
#define COUNT "[0-9]{1,9}"

static const struct {
    const char *name, *pattern;
} formats[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "T" TIME },
    { "duration",
      "P(?:" COUNT "W|(?:" COUNT "Y(?:" COUNT "M(?:" COUNT "D)?)?"
      "|" COUNT "M(?:" COUNT "D)?|" COUNT "D)(?:T(?:" COUNT "H(?:" COUNT
      "M(?:" COUNT "S)?)?|" COUNT "M(?:" COUNT "S)?|" COUNT "S))?"
      "|T(?:" COUNT "H(?:" COUNT "M(?:" COUNT "S)?)?|" COUNT "M(?:" COUNT
      "S)?|" COUNT "S))" },
    { "uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}" },
    { "ipv4", BYTE "(?:\\." BYTE "){3}" },
    { "ipv6",
      "(?:" HEX ":){7}" HEX "|(?:" HEX ":){1,7}:|(?:" HEX ":){1,6}:" HEX
      "|(?:" HEX ":){1,5}(?::" HEX "){1,2}|(?:" HEX ":){1,4}(?::" HEX
      "){1,3}|(?:" HEX ":){1,3}(?::" HEX "){1,4}|(?:" HEX ":){1,2}(?::" HEX
      "){1,5}|" HEX ":(?::" HEX "){1,6}|:(?:(?::" HEX "){1,7}|:)" },
    /* At most three labels keep it below 253 characters. */
    { "hostname", LABEL "(?:\\." LABEL "){0,2}" },
    { "email", UNIT "(?:\\." UNIT ")*@(?:" LABEL "\\.){1,3}" LABEL },
    { "uri", "[a-zA-Z][a-zA-Z0-9+.-]{0,19}://" LABEL "(?:\\." LABEL
             "){0,2}(?::[0-9]{1,5})?(?:/" PCHAR "*)*(?:\\?(?:" PCHAR
             "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?" },
};

const char *g_format_pattern(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i].name, name))
            return formats[i].pattern;
    return NULL;
}

static const struct {
    const char *name;
    int64_t min, max;
} ranges[] = {
    { "int8", -128, 127 },
    { "uint8", 0, 255 },
    { "int16", -32768, 32767 },
    { "uint16", 0, 65535 },
    { "int32", -2147483647 - 1, 2147483647 },
    { "uint32", 0, 4294967295 },
    { "int64", -G_INTEGER_MAX, G_INTEGER_MAX },
    { "uint64", 0, G_INTEGER_MAX },
};

bool g_format_range(const char *name, int64_t *min, int64_t *max)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!strcmp(ranges[i].name, name)) {
            *min = ranges[i].min;
            *max = ranges[i].max;
            return true;
        }
    return false;
}
