/* The tags of the GLM output format. */
#ifndef SEAM_GLM_MARKERS_H
#define SEAM_GLM_MARKERS_H

enum {
    M_THINK = 0,
    M_THINK_END = 1,
    M_CALL = 2,
    M_CALL_END = 3,
    M_KEY = 4,
    M_KEY_END = 5,
    M_VALUE = 6,
    M_VALUE_END = 7,
    N_MARKERS = 8
};

static const char *const glm_markers[N_MARKERS] = {
    [M_THINK] = "<think>",     [M_THINK_END] = "</think>",
    [M_CALL] = "<tool_call>",  [M_CALL_END] = "</tool_call>",
    [M_KEY] = "<arg_key>",     [M_KEY_END] = "</arg_key>",
    [M_VALUE] = "<arg_value>", [M_VALUE_END] = "</arg_value>",
};

#endif
