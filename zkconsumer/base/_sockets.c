/* Receives a large response in one call: while its bytes arrive, each wait is a system call and no call of Python.
 *
 * Without this module `zkconsumer/kafka/net/selector.py` does the same by its selector, with more calls. */

#include "zkconsumer_limited.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#define LARGE_BUFFER_BYTES (256 * 1024)
#define LATE_MS 2

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* For how many bytes one wait may be: a wait for each packet costs as much as the copy of its bytes.  A quarter of the
 * receive buffer, so that the sender has room to go on meanwhile; of a small buffer two packets are half. */
static int waited_bytes_max(int fd) {
    int buffer_bytes = 0;
    socklen_t size = sizeof buffer_bytes;
    if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, &size) != 0) return 1;
    return buffer_bytes < LARGE_BUFFER_BYTES ? 1 : buffer_bytes / 4;
}

typedef enum { READABLE, LATE, OVER } wait_end;

/* Waits until `bytes`, or the end of the connection, can be received.  LATE: they are not there after LATE_MS, but fewer may
 * be.  OVER: the time is over, the other descriptor has bytes, or a signal has arrived; also if there is an error: a socket
 * reports it once, and so the next call must find it. */
static wait_end wait_readable(int fd, int bytes, int wake_fd, int64_t until_ms) {
    struct pollfd watched[2] = {{.fd = fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
    int64_t left_ms = until_ms - now_ms();
    if (left_ms < 0) return OVER;
    bool may_be_late = bytes > 1 && left_ms > LATE_MS;
    int count = poll(watched, 2, may_be_late ? LATE_MS : (int)left_ms);
    if (count == 0) return may_be_late ? LATE : OVER;
    return count > 0 && !(watched[0].revents & (POLLERR | POLLNVAL)) && watched[1].revents == 0 ? READABLE : OVER;
}

/* receive(fd, wake_fd, wait_ms, buffer): receives until the buffer is full, the connection ends, `wait_ms` are over,
 * `wake_fd` has bytes (negative: there is none), or a signal arrives.  Returns how many bytes; 0: the connection has
 * ended.  OSError as recv_into of a socket that does not block, only if nothing was received before.
 *
 * While bytes arrive, SO_RCVLOWAT lets the socket be readable only when many are there.  A wait for them may be LATE: the
 * sender is slow, or has no room, because its packets are small and Linux before 5.12 does not count what they take beside
 * their bytes. */
static PyObject *receive(PyObject *Py_UNUSED(module), PyObject *args) {
    int fd, wake_fd, wait_ms, error = 0;
    Py_buffer into;
    if (!PyArg_ParseTuple(args, "iiiw*", &fd, &wake_fd, &wait_ms, &into)) return NULL;
    Py_ssize_t received = 0;
    Py_BEGIN_ALLOW_THREADS;
    int64_t until_ms = now_ms() + wait_ms;
    int readable_from = 1, most = waited_bytes_max(fd);
    for (;;) {
        ssize_t count = recv(fd, (char *)into.buf + received, (size_t)(into.len - received), MSG_DONTWAIT);
        error = count < 0 ? errno : 0;
        if (count == 0 || (error && error != EAGAIN && error != EWOULDBLOCK)) break;
        if (count > 0) received += count;
        if (received == into.len) break;
        int bytes = count > 0 ? (int)Py_MIN(into.len - received, most) : 1;
        if (bytes != readable_from) {
            /* Where the system refuses it there are only more waits. */
            (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
            readable_from = bytes;
        }
        if (wait_readable(fd, bytes, wake_fd, until_ms) == OVER) break;
    }
    if (readable_from != 1) {
        int one = 1;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
    }
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&into);
    if (error && !received) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromSsize_t(received);
}

static PyMethodDef functions[] = {
    {"receive", receive, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    ZK_MODULE_GIL_SLOT
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_sockets",
    .m_doc = "Receives large responses.  Internal: see zkconsumer.kafka.net.selector.",
    .m_size = 0,
    .m_slots = module_slots,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__sockets(void) { return PyModuleDef_Init(&definition); }
