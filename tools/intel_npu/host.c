/* The Windows end: loads Intel's compiler and answers requests from standard input on standard output.

   What the compiler prints goes to standard error, so that it does not mix with the answers. */
#include <stdlib.h>
#include <string.h>
#include <windows.h>
#include "vcl.h"

typedef struct allocator {
    uint8_t *(*allocate)(struct allocator *, uint64_t);
    void (*give)(struct allocator *, uint8_t *);
} allocator_t;

static uint8_t *allocate(allocator_t *room, uint64_t size) { return (void)room, malloc(size); }
static void give(allocator_t *room, uint8_t *bytes) { (void)room, free(bytes); }
static allocator_t room = {allocate, give};
static HMODULE library;
static HANDLE in, out;

/* Called with the types of its arguments: a call without them would pass small structures in another way. */
#define CALL(name, types, ...) ((int32_t(*) types)GetProcAddress(library, name))(__VA_ARGS__)

static void move(HANDLE file, void *bytes, uint64_t size, int write) {
    uint8_t *at = bytes;
    while (size) {
        DWORD now = size > 1 << 20 ? 1 << 20 : (DWORD)size, done = 0;
        BOOL well = write ? WriteFile(file, at, now, &done, 0) : ReadFile(file, at, now, &done, 0);
        if (!well || !done) ExitProcess(write ? 3 : 0);
        at += done, size -= done;
    }
}

static void answer(reply_t reply, void *bytes) {
    move(out, &reply, sizeof reply, 1);
    move(out, bytes, reply.size, 1);
}

/* A text or bytes that the compiler gives in two calls: first their size, then themselves. */
#define IN_TWO_CALLS(name, type, handle)                                                      \
    reply.status = CALL(name, (void *, type *, uint64_t *), handle, 0, &reply.size);          \
    if (!reply.status && reply.size) {                                                        \
        made = malloc(reply.size);                                                            \
        reply.status = CALL(name, (void *, type *, uint64_t *), handle, (type *)made, &reply.size); \
    }

int main(int count, char **words) {
    in = GetStdHandle(STD_INPUT_HANDLE), out = GetStdHandle(STD_OUTPUT_HANDLE);
    SetStdHandle(STD_OUTPUT_HANDLE, GetStdHandle(STD_ERROR_HANDLE));
    if (count != 2 || !(library = LoadLibraryExA(words[1], 0, LOAD_WITH_ALTERED_SEARCH_PATH))) return 2;
    for (;;) {
        request_t r;
        reply_t reply = {0};
        uint8_t *made = 0, *data[2];
        void *handle, *inner = 0;
        move(in, &r, sizeof r, 0);
        handle = (void *)r.handle;
        for (int i = 0; i < 2; i++) {
            data[i] = calloc(r.size[i] + 1, 1);
            move(in, data[i], r.size[i], 0);
        }
        job_t job = {data[0], r.size[0], (char *)data[1], r.size[1]};
        switch (r.what) {
        case VERSION:
            made = calloc(1, reply.size = 2 * sizeof(version_t));
            reply.status = CALL("vclGetVersion", (void *, void *), made, made + sizeof(version_t));
            break;
        case CREATE:
            reply.status = CALL("vclCompilerCreate", (void *, void *, void *, void *), data[0], data[1], &reply.handle[0],
                                &reply.handle[1]);
            break;
        case DESTROY:
            reply.status = CALL("vclCompilerDestroy", (void *), handle);
            break;
        case PROPERTIES: {
            properties_t found = {0};
            reply.status = CALL("vclCompilerGetProperties", (void *, void *), handle, &found);
            const char *id = found.id ? found.id : "";
            made = malloc(reply.size = 9 + strlen(id));
            memcpy(made, &found.version, 4), memcpy(made + 4, &found.opsets, 4), strcpy((char *)made + 8, id);
            break;
        }
        case QUERY:
            reply.status = CALL("vclQueryNetworkCreate", (void *, job_t, void *), handle, job, &inner);
            if (!reply.status) {
                IN_TWO_CALLS("vclQueryNetwork", uint8_t, inner)
                CALL("vclQueryNetworkDestroy", (void *), inner);
            }
            break;
        case COMPILE: {
            /* The compiled model, then the text of what a chip must have to run it, if there is one. */
            uint64_t size = 0;
            reply.status = CALL("vclAllocatedExecutableCreate4", (void *, job_t, void *, void *, void *, void *), handle, job,
                                &room, &made, &reply.size, &inner);
            if (reply.status) break;
            reply.handle[0] = reply.size;
            if (!CALL("vclExecutableGetCompatibilityString", (void *, char *, uint64_t *), inner, 0, &size)) {
                made = realloc(made, reply.size + size);
                if (!CALL("vclExecutableGetCompatibilityString", (void *, char *, uint64_t *), inner,
                          (char *)made + reply.size, &size))
                    reply.size += size;
            }
            CALL("vclExecutableDestroy", (void *), inner);
            break;
        }
        case LOG:
            /* Its arguments have another order. */
            reply.status = CALL("vclLogHandleGetString", (void *, uint64_t *, char *), handle, &reply.size, 0);
            if (!reply.status && reply.size) {
                made = malloc(reply.size);
                reply.status = CALL("vclLogHandleGetString", (void *, uint64_t *, char *), handle, &reply.size, (char *)made);
            }
            break;
        case OPTIONS:
            IN_TWO_CALLS("vclGetCompilerSupportedOptions", char, handle)
            break;
        case HAS_OPTION:
            reply.status = CALL("vclGetCompilerIsOptionSupported", (void *, char *, char *), handle, (char *)data[0],
                                r.flag ? (char *)data[1] : 0);
            break;
        default:
            reply.status = UNSUPPORTED;
        }
        if (!made) reply.size = 0;
        answer(reply, made);
        free(made), free(data[0]), free(data[1]);
    }
}
