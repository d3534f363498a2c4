/* What the tests of plugins share beyond core/check. */
#ifndef SEAM_TESTS_PLUGINS_TESTHOST_H
#define SEAM_TESTS_PLUGINS_TESTHOST_H

#include "core/check/drive.h"
#include "core/check/finding.h"

#endif
