#include "core/server/tools.h"

#include <string.h>

const json_t *seam_tool_function(const json_t *tool)
{
    const json_t *f = json_object_get(tool, "function");

    return json_is_object(f) ? f : tool;
}

const char *seam_tool_name(const json_t *tool)
{
    return json_string_value(json_object_get(seam_tool_function(tool), "name"));
}

const char *seam_tools_field(const struct seam_request *r)
{
    return json_array_size(json_object_get(r->body, "tools")) ? "tools"
                                                              : "functions";
}

static bool is_named(const json_t *allowed, const json_t *tool)
{
    const char *name = seam_tool_name(tool), *other;
    const json_t *a;
    size_t i;

    json_array_foreach(allowed, i, a)
    {
        other = seam_tool_name(a);
        if (name && other && !strcmp(name, other))
            return true;
    }
    return false;
}

json_t *seam_tools_callable(const struct seam_request *r)
{
    const json_t *all = json_object_get(r->body, seam_tools_field(r));
    const json_t *choice = json_object_get(r->body, "tool_choice");
    const json_t *allowed = json_object_get(choice, "allowed_tools");
    json_t *list = json_array(), *tool;
    size_t i;

    if (!json_is_object(allowed))
        allowed = choice; /* the flat form */
    allowed = json_object_get(allowed, "tools");
    json_array_foreach(all, i, tool)
    {
        if (json_is_array(allowed) && !is_named(allowed, tool))
            continue;
        if (json_array_append(list, tool)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

size_t seam_tools_place(const struct seam_request *r, const json_t *callable,
                        size_t i)
{
    const json_t *all = json_object_get(r->body, seam_tools_field(r));
    const json_t *tool = json_array_get(callable, i);
    size_t at = 0;

    while (at < json_array_size(all) && json_array_get(all, at) != tool)
        at++;
    return at;
}
