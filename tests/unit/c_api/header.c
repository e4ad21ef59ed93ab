// The C interface's header is C99, and brings all that it needs.
#include "ranklink/ranklink.h"

// Its macros can be used in C, and its numbers are constants.
const ranklink_options header_options = RANKLINK_OPTIONS_INIT;
const int header_numbers[] = {RANKLINK_OK, RANKLINK_ERROR_op_timeout, RANKLINK_F32, RANKLINK_SUM};
