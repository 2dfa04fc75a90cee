/* The steps of a check, in the order in which a process performs them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>

enum {
  kEnd,
  kInitialise,     /* `object`: the context; `number`: of the communicator */
  kStartListening, /* `object`, `on` a context; `number`: the device; `handle`: what it gets */
  kConnect,        /* begins: `object`: a sending end, `on` a context, to `handle` */
  kAccept,         /* begins: `object`: a receiving end, `on` a listening end */
  kConnected,      /* waits for the connect or accept of `object` */
  kSend,           /* `on` a sending end; one buffer; begins the next request */
  kRecv,           /* `on` a receiving end; `count` buffers; begins the next request */
  kDone,           /* waits for request `number`; requests are numbered from 0 */
  kMeet,           /* waits for the other process */
  kPause           /* sleeps for `number` milliseconds */
};
struct buffer {
  uint64_t bytes; /* of the message, or for one */
  int tag;
  int message; /* its content; -1: not known */
  uint64_t message_bytes;
  int offset; /* of its address from a multiple of 64 */
  int is_null;
};
struct step {
  int what;
  const char* name;
  int object;
  int on;
  int number;
  int handle;
  int count;
  struct buffer buffers[8];
};
