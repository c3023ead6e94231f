/* What Intel's compiler is asked over a pipe, and the parts of its C interface (VCL) that both ends name. */
#include <stdint.h>

enum { VERSION, CREATE, DESTROY, PROPERTIES, QUERY, COMPILE, LOG, OPTIONS, HAS_OPTION };
enum { SUCCESS = 0, NO_MEMORY = 0x70000002, UNSUPPORTED = 0x78000003, UNKNOWN = 0x7ffffffe };

typedef struct { uint16_t major, minor; } version_t;
typedef struct { version_t version; int32_t level; } compiler_desc_t;
typedef struct { uint64_t size; uint32_t device; uint16_t revision; uint32_t tiles; } device_desc_t;
typedef struct { const char *id; version_t version; uint32_t opsets; } properties_t;
/* A model and the options of its compilation. */
typedef struct { const uint8_t *model; uint64_t model_size; const char *options; uint64_t options_size; } job_t;

/* Followed by size[0] and size[1] bytes. `handle` is a pointer of the host's, which the other end only keeps. */
typedef struct { uint32_t what, flag; uint64_t handle, size[2]; } request_t;
/* Followed by `size` bytes. */
typedef struct { uint32_t status, flag; uint64_t handle[2], size; } reply_t;
