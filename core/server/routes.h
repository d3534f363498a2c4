/* Handlers of the routes; each answers its exchange. */
#ifndef SEAM_SERVER_ROUTES_H
#define SEAM_SERVER_ROUTES_H

#include "core/server/http.h"

void seam_api_chat(struct seam_http *h);
void seam_api_completions(struct seam_http *h);
void seam_api_messages(struct seam_http *h);
void seam_api_count_tokens(struct seam_http *h);
void seam_api_responses(struct seam_http *h);
void seam_api_response(struct seam_http *h);
void seam_api_input_tokens(struct seam_http *h);
void seam_api_tokenize(struct seam_http *h);
void seam_api_detokenize(struct seam_http *h);
void seam_api_template(struct seam_http *h);
void seam_api_models(struct seam_http *h);
void seam_api_model(struct seam_http *h);
void seam_api_config(struct seam_http *h);
void seam_api_plugins(struct seam_http *h);
void seam_api_swap(struct seam_http *h);
void seam_api_version(struct seam_http *h);
void seam_api_root(struct seam_http *h);
void seam_api_load(struct seam_http *h);
void seam_api_health(struct seam_http *h);
void seam_api_livez(struct seam_http *h);
void seam_api_readyz(struct seam_http *h);
void seam_api_metrics(struct seam_http *h);

/* For /metrics: what the rows and columns of answers[][] mean; NULL ends. */
const char *seam_route_label(uint32_t route);
int seam_code_of(uint32_t column);

#endif
