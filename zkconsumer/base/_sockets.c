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

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until bytes, or the end, can be received.  Returns false if the time is over, the other descriptor has bytes, or a
 * signal has arrived; also if there is an error: a socket reports it once, and so the next call must find it. */
static bool wait_readable(int fd, int wake_fd, int64_t until_ms) {
    struct pollfd watched[2] = {{.fd = fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
    int64_t left_ms = until_ms - now_ms();
    if (left_ms < 0 || poll(watched, 2, (int)left_ms) <= 0) return false;
    return !(watched[0].revents & (POLLERR | POLLNVAL)) && watched[1].revents == 0;
}

/* receive(fd, wake_fd, wait_ms, buffer): receives until the buffer is full, the connection ends, `wait_ms` are over,
 * `wake_fd` has bytes (negative: there is none), or a signal arrives.  Returns how many bytes; 0: the connection has
 * ended.  OSError as recv_into of a socket that does not block, only if nothing was received before. */
static PyObject *receive(PyObject *Py_UNUSED(module), PyObject *args) {
    int fd, wake_fd, wait_ms, error = 0;
    Py_buffer into;
    if (!PyArg_ParseTuple(args, "iiiw*", &fd, &wake_fd, &wait_ms, &into)) return NULL;
    Py_ssize_t received = 0;
    bool has_ended = false, is_waiting;
    Py_BEGIN_ALLOW_THREADS;
    int64_t until_ms = now_ms() + wait_ms;
    do {
        ssize_t count = recv(fd, (char *)into.buf + received, (size_t)(into.len - received), MSG_DONTWAIT);
        error = count < 0 ? errno : 0;
        has_ended = count == 0;
        if (count > 0) received += count;
        is_waiting = !error || error == EAGAIN || error == EWOULDBLOCK;
    } while (!has_ended && is_waiting && received < into.len && wait_readable(fd, wake_fd, until_ms));
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
