/* With -DBREAK_NAME=1 BROKEN(NAME) is 1, for every other name 0; both in #if
 * and in expressions. */
#ifndef SEAM_TESTS_CHECK_BREAKS_H
#define SEAM_TESTS_CHECK_BREAKS_H

#define BROKEN(name)             BROKEN_VALUE(BREAK_##name)
#define BROKEN_VALUE(v)          BROKEN_PLACE(v)
#define BROKEN_PLACE(v)          BROKEN_PICK(BROKEN_PLACE_##v)
#define BROKEN_PLACE_1           0,
#define BROKEN_PICK(junk)        BROKEN_SECOND(junk 1, 0, 0)
#define BROKEN_SECOND(a, b, ...) b

#endif
