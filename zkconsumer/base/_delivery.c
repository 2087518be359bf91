/* The delivery of records to the thread that iterates a stream, compiled.
 *
 * `zkconsumer/kafka/record_delivery.py` defines the behaviour and does the same in Python if this module is missing.
 * What needs no speed (chunks, poison messages, waiting) is in Python: `zkconsumer/kafka/table_delivery.py` puts one
 * table of rows after the other into a Delivery, and Iterator.__next__ returns one message for each row.
 *
 * Before each record, in this order (`deliver`):
 *   1. the record before it counts as consumed;
 *   2. the message object is created: after step 4 nothing can fail, and no Python code runs;
 *   3. signal handlers run, which may raise: then the record is undelivered, and the next call returns it;
 *   4. `unacknowledged_offset` is written, then `is_live` is read.  Another thread that revokes the partition writes
 *      `is_live`, then reads `unacknowledged_offset`.  Both use sequentially consistent atomics: either the record is
 *      not delivered, or that thread reads its offset;
 *   5. the clock is read (CLOCK_BOOTTIME, which counts while the machine is suspended) and compared with the lease's end;
 *   6. the record is delivered.
 *
 * Everything else that several threads use is guarded by the global interpreter lock, which the package requires
 * (`zkconsumer/platforms.py`). */

#include "zkconsumer_rows.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define NO_UNACKNOWLEDGED_OFFSET (-1)
#define NO_TIME INT64_MIN
#define NO_THREAD 0

typedef struct {
    PyObject *key, *value, *offset, *topic, *partition, *timestamp; /* interned */
    PyTypeObject *lease_type, *queue_type, *ownership_type, *bytes_type, *origin_type, *message_type, *delivery_type,
        *iterator_type, *batches_type;
    PyObject *step; /* only in test builds */
} module_state;

#ifdef ZKCONSUMER_TEST_STEPS
/* Tests run every interleaving: the function lets another thread run between two accesses of shared memory. */
static void step(module_state *state) {
    if (state->step && state->step != Py_None) {
        PyObject *done = PyObject_CallFunctionObjArgs(state->step, NULL);
        if (!done) PyErr_WriteUnraisable(state->step);
        Py_XDECREF(done);
    }
}
#else
#define step(state) ((void)(state))
#endif

static module_state *state_of_type(PyTypeObject *type);

static uint64_t thread_number(void) { return PyThreadState_GetID(PyThreadState_Get()); }

/* calling_thread() -> a number that is unique among all threads of this process */
static PyObject *calling_thread(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromUnsignedLongLong(thread_number());
}

static PyObject *time_or_none(int64_t ms) { return ms == NO_TIME ? Py_NewRef(Py_None) : PyLong_FromLongLong(ms); }

static int time_of(PyObject *value, int64_t *ms) {
    if (value == NULL || value == Py_None) {
        *ms = NO_TIME;
        return 0;
    }
    *ms = PyLong_AsLongLong(value);
    return *ms == -1 && PyErr_Occurred() ? -1 : 0;
}

static bool is_deleted(PyObject *value) {
    if (!value) PyErr_SetString(PyExc_AttributeError, "cannot be deleted");
    return !value;
}

/* --- LeaseState: until when records may be delivered -------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *clock;
    bool is_system; /* the clock is the system clock, which this module reads directly */
    _Atomic int64_t until_ms;
} lease;

static int64_t system_ms(void) {
    struct timespec now;
#ifdef CLOCK_BOOTTIME
    clock_gettime(CLOCK_BOOTTIME, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns false if the clock raised. */
static bool lease_now(lease *self, int64_t *ms) {
    if (self->is_system) {
        *ms = system_ms();
        return true;
    }
    PyObject *found = PyObject_CallMethod(self->clock, "now_ms", NULL);
    if (!found) return false;
    *ms = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return *ms != -1 || !PyErr_Occurred();
}

static int lease_init(lease *self, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *clock;
    int is_system;
    if (!PyArg_ParseTuple(args, "Op", &clock, &is_system)) return -1;
    PyObject *before = self->clock;
    self->clock = Py_NewRef(clock);
    Py_XDECREF((PyObject *)before);
    self->is_system = is_system;
    atomic_store(&self->until_ms, 0);
    return 0;
}

static int lease_traverse(lease *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->clock);
    return 0;
}

static int lease_clear(lease *self) {
    Py_CLEAR(self->clock);
    return 0;
}

static void lease_dealloc(lease *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    lease_clear(self);
    FREE(type, self);
    Py_DECREF(type);
}

static PyObject *lease_get_until(lease *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(atomic_load(&self->until_ms));
}

static int lease_set_until(lease *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (is_deleted(value)) return -1;
    int64_t ms = PyLong_AsLongLong(value);
    if (ms == -1 && PyErr_Occurred()) return -1;
    atomic_store(&self->until_ms, ms);
    return 0;
}

static PyObject *lease_get_clock(lease *self, void *Py_UNUSED(closure)) {
    return Py_NewRef(self->clock ? self->clock : Py_None);
}

static PyGetSetDef lease_getset[] = {
    {"until_ms", (getter)lease_get_until, (setter)lease_set_until, NULL, NULL},
    {"clock", (getter)lease_get_clock, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot lease_slots[] = {
    {Py_tp_init, lease_init},         {Py_tp_dealloc, lease_dealloc}, {Py_tp_traverse, lease_traverse},
    {Py_tp_clear, lease_clear},       {Py_tp_getset, lease_getset},   {0, NULL},
};

static PyType_Spec lease_spec = {
    .name = "zkconsumer.base._delivery.LeaseState",
    .basicsize = sizeof(lease),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = lease_slots,
};

/* --- QueueState: the state that a stream's queue shares with the delivery ------------------------------------------ */

typedef struct {
    PyObject_HEAD
    bool is_ended;           /* the end marker is in the queue */
    int64_t unacknowledged_since_ms; /* NO_TIME: the program has no record */
} queue;

static PyObject *queue_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    queue *self = (queue *)ALLOC(type);
    if (self) self->unacknowledged_since_ms = NO_TIME;
    return (PyObject *)self;
}

static void queue_dealloc(queue *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    FREE(type, self);
    Py_DECREF(type);
}

static PyObject *queue_get_ended(queue *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(self->is_ended); }

static int queue_set_ended(queue *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (is_deleted(value)) return -1;
    int is_true = PyObject_IsTrue(value);
    if (is_true >= 0) self->is_ended = is_true;
    return is_true < 0 ? -1 : 0;
}

static PyObject *queue_get_since(queue *self, void *Py_UNUSED(closure)) { return time_or_none(self->unacknowledged_since_ms); }

static int queue_set_since(queue *self, PyObject *value, void *Py_UNUSED(closure)) {
    return time_of(value, &self->unacknowledged_since_ms);
}

static PyGetSetDef queue_getset[] = {
    {"is_ended", (getter)queue_get_ended, (setter)queue_set_ended, NULL, NULL},
    {"unacknowledged_since_ms", (getter)queue_get_since, (setter)queue_set_since, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot queue_slots[] = {
    {Py_tp_new, queue_new},
    {Py_tp_dealloc, queue_dealloc},
    {Py_tp_getset, queue_getset},
    {0, NULL},
};

static PyType_Spec queue_spec = {
    .name = "zkconsumer.base._delivery.QueueState",
    .basicsize = sizeof(queue),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = queue_slots,
};

/* --- OwnershipState: one ownership of one partition ----------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    _Atomic int64_t unacknowledged_offset;
    _Atomic bool is_live;
    int64_t resets; /* how often the reset policy set the position; the next field is the last such position */
    int64_t reset_to;
    int64_t consumed_in; /* the value of `resets` for which `consumed` is valid */
    int64_t consumed;
    PyObject *on_drained; /* called when no record is unacknowledged any more, after a revocation; NULL: not revoked */
    module_state *state;
} ownership;

static PyObject *ownership_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    module_state *state = state_of_type(type);
    ownership *self = state ? (ownership *)ALLOC(type) : NULL;
    if (!self) return NULL;
    self->state = state;
    atomic_init(&self->unacknowledged_offset, NO_UNACKNOWLEDGED_OFFSET);
    atomic_init(&self->is_live, true);
    return (PyObject *)self;
}

static int ownership_traverse(ownership *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->on_drained);
    return 0;
}

static int ownership_clear(ownership *self) {
    Py_CLEAR(self->on_drained);
    return 0;
}

static void ownership_dealloc(ownership *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    ownership_clear(self);
    FREE(type, self);
    Py_DECREF(type);
}

static int64_t consumed_offset(const ownership *self) {
    return self->consumed_in == self->resets ? self->consumed : self->reset_to;
}

/* No record is unacknowledged any more.  May be called twice.  Returns false if the callback raised: then call it again.
 *
 * The store needs no full barrier, unlike that of `begin_delivery`: `on_drained`, which is read after it, is guarded by
 * the global interpreter lock.  A full barrier would cost each record 5 ns. */
static bool undeliver(ownership *self) {
    atomic_store_explicit(&self->unacknowledged_offset, NO_UNACKNOWLEDGED_OFFSET, memory_order_release);
    step(self->state);
    if (!self->on_drained) return true;
    PyObject *on_drained = Py_NewRef(self->on_drained);
    PyObject *done = PyObject_CallFunctionObjArgs(on_drained, self, NULL);
    Py_DECREF(on_drained);
    Py_XDECREF(done);
    return done != NULL;
}

static void mark_consumed(ownership *self, int64_t next_offset, int64_t resets) {
    self->consumed = next_offset;
    self->consumed_in = resets;
}

/* The record is about to be delivered.  1: deliver it; 0: the partition is revoked; -1: the callback raised. */
static int begin_delivery(ownership *self, int64_t offset) {
    step(self->state);
    atomic_store(&self->unacknowledged_offset, offset);
    step(self->state);
    bool is_live = atomic_load(&self->is_live);
    step(self->state);
    if (is_live) return 1;
    return undeliver(self) ? 0 : -1;
}

/* The program has processed the delivered record.  Returns false if the callback raised; the call may be repeated. */
static bool done_with(ownership *self, int64_t next_offset, int64_t resets) {
    mark_consumed(self, next_offset, resets);
    step(self->state);
    return undeliver(self);
}

/* start_at(offset): the first position */
static PyObject *ownership_start_at(ownership *self, PyObject *offset) {
    int64_t at = PyLong_AsLongLong(offset);
    if (at == -1 && PyErr_Occurred()) return NULL;
    self->resets = self->consumed_in = 0;
    self->reset_to = self->consumed = at;
    Py_RETURN_NONE;
}

static PyObject *ownership_mark_consumed(ownership *self, PyObject *args) {
    long long next_offset, resets;
    if (!PyArg_ParseTuple(args, "LL", &next_offset, &resets)) return NULL;
    mark_consumed(self, next_offset, resets);
    Py_RETURN_NONE;
}

static PyObject *ownership_apply_reset(ownership *self, PyObject *offset) {
    int64_t to = PyLong_AsLongLong(offset);
    if (to == -1 && PyErr_Occurred()) return NULL;
    self->reset_to = to;
    self->resets++;
    Py_RETURN_NONE;
}

static PyObject *ownership_begin_delivery(ownership *self, PyObject *offset) {
    int64_t at = PyLong_AsLongLong(offset);
    if (at == -1 && PyErr_Occurred()) return NULL;
    int is_ours = begin_delivery(self, at);
    return is_ours < 0 ? NULL : PyBool_FromLong(is_ours);
}

static PyObject *ownership_acknowledge(ownership *self, PyObject *args) {
    long long next_offset, resets;
    if (!PyArg_ParseTuple(args, "LL", &next_offset, &resets)) return NULL;
    if (!done_with(self, next_offset, resets)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *ownership_undeliver(ownership *self, PyObject *Py_UNUSED(ignored)) {
    if (!undeliver(self)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *ownership_get_unacknowledged_offset(ownership *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(atomic_load(&self->unacknowledged_offset));
}

static int ownership_set_unacknowledged_offset(ownership *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (is_deleted(value)) return -1;
    int64_t offset = PyLong_AsLongLong(value);
    if (offset == -1 && PyErr_Occurred()) return -1;
    atomic_store(&self->unacknowledged_offset, offset);
    return 0;
}

static PyObject *ownership_get_live(ownership *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(atomic_load(&self->is_live));
}

static int ownership_set_live(ownership *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (is_deleted(value)) return -1;
    int is_true = PyObject_IsTrue(value);
    if (is_true >= 0) atomic_store(&self->is_live, (bool)is_true);
    return is_true < 0 ? -1 : 0;
}

static PyObject *ownership_get_resets(ownership *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->resets);
}

static PyObject *ownership_get_consumed(ownership *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(consumed_offset(self));
}

static PyObject *ownership_get_on_drained(ownership *self, void *Py_UNUSED(closure)) {
    return Py_NewRef(self->on_drained ? self->on_drained : Py_None);
}

static int ownership_set_on_drained(ownership *self, PyObject *value, void *Py_UNUSED(closure)) {
    PyObject *before = self->on_drained;
    self->on_drained = value && value != Py_None ? Py_NewRef(value) : NULL;
    Py_XDECREF((PyObject *)before);
    return 0;
}

static PyGetSetDef ownership_getset[] = {
    {"unacknowledged_offset", (getter)ownership_get_unacknowledged_offset, (setter)ownership_set_unacknowledged_offset, NULL, NULL},
    {"is_live", (getter)ownership_get_live, (setter)ownership_set_live, NULL, NULL},
    {"resets", (getter)ownership_get_resets, NULL, NULL, NULL},
    {"consumed_offset", (getter)ownership_get_consumed, NULL, NULL, NULL},
    {"on_drained", (getter)ownership_get_on_drained, (setter)ownership_set_on_drained, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef ownership_methods[] = {
    {"start_at", (PyCFunction)ownership_start_at, METH_O, NULL},
    {"mark_consumed", (PyCFunction)ownership_mark_consumed, METH_VARARGS, NULL},
    {"apply_reset", (PyCFunction)ownership_apply_reset, METH_O, NULL},
    {"undeliver", (PyCFunction)ownership_undeliver, METH_NOARGS, NULL},
    {"begin_delivery", (PyCFunction)ownership_begin_delivery, METH_O, NULL},
    {"acknowledge", (PyCFunction)ownership_acknowledge, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ownership_slots[] = {
    {Py_tp_new, ownership_new},         {Py_tp_dealloc, ownership_dealloc},   {Py_tp_traverse, ownership_traverse},
    {Py_tp_clear, ownership_clear},     {Py_tp_methods, ownership_methods},   {Py_tp_getset, ownership_getset},
    {0, NULL},
};

static PyType_Spec ownership_spec = {
    .name = "zkconsumer.base._delivery.OwnershipState",
    .basicsize = sizeof(ownership),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = ownership_slots,
};

/* --- shared by the messages of one table ----------------------------------------------------------------------------- */

static PyType_Spec bytes_spec = HELD_BYTES_SPEC("zkconsumer.base._delivery.HeldBytes");

/* The source of messages, and their decoders. */
typedef struct {
    PyObject_HEAD
    PyObject *topic;
    PyObject *partition;
    PyObject *key_decoder;   /* NULL: the unchanged bytes */
    PyObject *value_decoder;
    module_state *state;
} origin;

static int origin_traverse(origin *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->topic);
    Py_VISIT(self->partition);
    Py_VISIT(self->key_decoder);
    Py_VISIT(self->value_decoder);
    return 0;
}

static int origin_clear(origin *self) {
    Py_CLEAR(self->topic);
    Py_CLEAR(self->partition);
    Py_CLEAR(self->key_decoder);
    Py_CLEAR(self->value_decoder);
    return 0;
}

static void origin_dealloc(origin *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    origin_clear(self);
    FREE(type, self);
    Py_DECREF(type);
}

static PyType_Slot origin_slots[] = {
    {Py_tp_dealloc, origin_dealloc},
    {Py_tp_traverse, origin_traverse},
    {Py_tp_clear, origin_clear},
    {0, NULL},
};

static PyType_Spec origin_spec = {
    .name = "zkconsumer.base._delivery.Origin",
    .basicsize = sizeof(origin),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = origin_slots,
};

static origin *make_origin(
    module_state *state, PyObject *topic, PyObject *partition, PyObject *key_decoder, PyObject *value_decoder) {
    origin *made = (origin *)ALLOC(state->origin_type);
    if (!made) return NULL;
    made->state = state;
    made->topic = Py_NewRef(topic);
    made->partition = Py_NewRef(partition);
    made->key_decoder = key_decoder == Py_None ? NULL : Py_XNewRef(key_decoder);
    made->value_decoder = value_decoder == Py_None ? NULL : Py_XNewRef(value_decoder);
    return made;
}

/* --- messages -------------------------------------------------------------------------------------------------------- */

/* One record.  It is detached two records later at the latest. */
typedef struct {
    PyObject_HEAD
    origin *from;
    record_fields fields;
} message;

static int message_traverse(message *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->from);
    return visit_fields(&self->fields, visit, arg);
}

static int message_clear(message *self) {
    /* `from` stays: without it no attribute could be read, and its own clear breaks the cycle. */
    Py_CLEAR(self->fields.held);
    Py_CLEAR(self->fields.key);
    Py_CLEAR(self->fields.value);
    Py_CLEAR(self->fields.headers);
    return 0;
}

static void message_dealloc(message *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    message_clear(self);
    Py_CLEAR(self->from);
    FREE(type, self);
    Py_DECREF(type);
}

static PyObject *decoded(PyObject *raw, PyObject *decoder) {
    if (!raw) return NULL;
    if (!decoder || raw == Py_None) return Py_NewRef(raw);
    Py_INCREF(raw); /* the decoder may drop the message */
    PyObject *found = PyObject_CallFunctionObjArgs(decoder, raw, NULL);
    Py_DECREF(raw);
    return found;
}

static PyObject *message_get_key(message *self, void *Py_UNUSED(closure)) {
    return decoded(key_of(&self->fields), self->from->key_decoder);
}

static PyObject *message_get_value(message *self, void *Py_UNUSED(closure)) {
    return decoded(value_of(&self->fields), self->from->value_decoder);
}

static PyObject *message_get_offset(message *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->fields.row.offset);
}

static PyObject *message_get_timestamp(message *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->fields.row.timestamp);
}

static PyObject *message_get_timestamp_type(message *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLong(self->fields.row.timestamp_type);
}

static PyObject *message_get_topic(message *self, void *Py_UNUSED(closure)) { return Py_NewRef(self->from->topic); }

static PyObject *message_get_partition(message *self, void *Py_UNUSED(closure)) {
    return Py_NewRef(self->from->partition);
}

static PyObject *message_get_headers(message *self, void *Py_UNUSED(closure)) { return headers_of(&self->fields); }

/* Attributes that programs read for each record, without a dictionary lookup. */
static PyObject *message_getattro(message *self, PyObject *name) {
    const module_state *state = self->from->state;
    if (name == state->value) return message_get_value(self, NULL);
    if (name == state->key) return message_get_key(self, NULL);
    if (name == state->offset) return PyLong_FromLongLong(self->fields.row.offset);
    if (name == state->partition) return Py_NewRef(self->from->partition);
    if (name == state->topic) return Py_NewRef(self->from->topic);
    if (name == state->timestamp) return PyLong_FromLongLong(self->fields.row.timestamp);
    return PyObject_GenericGetAttr((PyObject *)self, name);
}

static PyObject *message_repr(message *self) {
    return PyUnicode_FromFormat(
        "MessageAndMetadata(%S/%S offset %lld)", self->from->topic, self->from->partition,
        (long long)self->fields.row.offset);
}

/* Fills the row of a message that contains its own fields. */
static int take_record(message *self, PyObject *record) {
    static const char *const names[] = {"offset", "timestamp", "timestamp_type"};
    int64_t numbers[3];
    for (int each = 0; each < 3; each++) {
        PyObject *number = PyObject_GetAttrString(record, names[each]);
        if (!number) return -1;
        numbers[each] = PyLong_AsLongLong(number);
        Py_DECREF(number);
        if (numbers[each] == -1 && PyErr_Occurred()) return -1;
    }
    self->fields.row.offset = numbers[0];
    self->fields.row.timestamp = numbers[1];
    self->fields.row.timestamp_type = (int32_t)numbers[2];
    self->fields.key = PyObject_GetAttrString(record, "key");
    self->fields.value = self->fields.key ? PyObject_GetAttrString(record, "value") : NULL;
    self->fields.headers = self->fields.value ? PyObject_GetAttrString(record, "headers") : NULL;
    return self->fields.headers ? 0 : -1;
}

/* MessageAndMetadata(topic, partition, record, key_decoder=None, value_decoder=None) */
static PyObject *message_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"topic", "partition", "record", "key_decoder", "value_decoder", NULL};
    PyObject *topic, *partition, *record, *key_decoder = NULL, *value_decoder = NULL;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OOO|OO", names, &topic, &partition, &record, &key_decoder, &value_decoder))
        return NULL;
    module_state *state = state_of_type(type);
    origin *from = state ? make_origin(state, topic, partition, key_decoder, value_decoder) : NULL;
    message *self = from ? (message *)ALLOC(type) : NULL;
    if (!self) {
        Py_XDECREF((PyObject *)from);
        return NULL;
    }
    self->from = from;
    if (take_record(self, record) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *message_record(message *self) {
    PyObject *found = NULL, *headers = message_get_headers(self, NULL);
    PyObject *module = headers ? PyImport_ImportModule("zkconsumer.wire.entries") : NULL;
    if (module && key_of(&self->fields) && value_of(&self->fields))
        found = PyObject_CallMethod(
            module, "Record", "LLiOOO", (long long)self->fields.row.offset, (long long)self->fields.row.timestamp,
            (int)self->fields.row.timestamp_type, self->fields.key, self->fields.value, headers);
    Py_XDECREF(headers);
    Py_XDECREF(module);
    return found;
}

static PyObject *message_reduce(message *self, PyObject *Py_UNUSED(ignored)) {
    PyObject *record = message_record(self);
    if (!record) return NULL;
    const origin *from = self->from;
    PyObject *found = Py_BuildValue(
        "O(OOOOO)", (PyObject *)Py_TYPE((PyObject *)self), from->topic, from->partition, record,
        from->key_decoder ? from->key_decoder : Py_None, from->value_decoder ? from->value_decoder : Py_None);
    Py_DECREF(record);
    return found;
}

static PyGetSetDef message_getset[] = {
    {"topic", (getter)message_get_topic, NULL, "Name of the topic.", NULL},
    {"partition", (getter)message_get_partition, NULL, "Number of the partition.", NULL},
    {"offset", (getter)message_get_offset, NULL, "Offset of the record in its partition.", NULL},
    {"key", (getter)message_get_key, NULL, "The key, decoded on each access; None without a key.", NULL},
    {"value", (getter)message_get_value, NULL, "The value, decoded on each access; None: a tombstone.", NULL},
    {"timestamp", (getter)message_get_timestamp, NULL, "Milliseconds since 1970; -1 in message format 0.", NULL},
    {"timestamp_type", (getter)message_get_timestamp_type, NULL, "0 producer, 1 log append, -1 none.", NULL},
    {"headers", (getter)message_get_headers, NULL, "Tuples of name and bytes; from message format 2 on.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef message_methods[] = {
    {"__reduce__", (PyCFunction)message_reduce, METH_NOARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

#define MESSAGE_DOC                                                                                                    \
    "One record.  key and value are decoded on each access, and None stays None (a tombstone).\n\n"                    \
    "timestamp: ms since 1970, -1 in format 0.  headers: name and bytes, from format 2 on.\n"                          \
    "The access raises the error of a decoder; the iterator is not affected (0.8.1 and later)."

static PyType_Slot message_slots[] = {
    {Py_tp_new, message_new},
    {Py_tp_dealloc, message_dealloc},
    {Py_tp_traverse, message_traverse},
    {Py_tp_clear, message_clear},
    {Py_tp_getattro, message_getattro},
    {Py_tp_repr, message_repr},
    {Py_tp_methods, message_methods},
    {Py_tp_getset, message_getset},
    {Py_tp_doc, MESSAGE_DOC},
    {0, NULL},
};

static PyType_Spec message_spec = {
    .name = "zkconsumer.streams.MessageAndMetadata",
    .basicsize = sizeof(message),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = message_slots,
};

/* --- Delivery: the next record of a stream --------------------------------------------------------------------------- */

#define RING 2

typedef struct {
    PyObject_HEAD
    module_state *state;
    queue *of;
    lease *until;
    PyObject *key_decoder; /* None: the unchanged bytes */
    PyObject *value_decoder;

    /* The table that is being delivered: rows[index] is the next record.  `loads` changes with every table. */
    ownership *owner;
    int64_t resets; /* of the owner, when the chunk was fetched; if the owner's number differs, the table is invalid */
    origin *from;
    held_bytes *held;
    Py_buffer rows;
    int64_t index;
    int64_t count;
    uint64_t loads;

    /* The records that the program has: one record or a batch.  They may exist longer than their table. */
    bool is_given;
    ownership *delivered_owner;
    int64_t delivered_resets;
    int64_t delivered_next;   /* the offset after them, or after the last record acknowledged by acknowledge_through() */
    int64_t delivered_behind; /* the offset after all of them */
    int64_t delivered_rows;   /* their number */
    uint64_t delivered_load;  /* `loads` when they were delivered */
    uint64_t deliveries;  /* how many times records were delivered */

    bool is_failed; /* see fail() of the Python class: the next call raises */
    uint64_t inside; /* the thread whose call is running */
    uint64_t thread_id;
    int64_t delivered_at_ms;

    /* The last messages.  A message without another reference is used again: a program that iterates by `for` refers
     * to the message before while it asks for the next one, so there are two. */
    message *ring[RING];
    int turn;
} delivery;

static int delivery_traverse(delivery *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->of);
    Py_VISIT((PyObject *)self->until);
    Py_VISIT(self->key_decoder);
    Py_VISIT(self->value_decoder);
    Py_VISIT((PyObject *)self->owner);
    Py_VISIT((PyObject *)self->from);
    Py_VISIT((PyObject *)self->delivered_owner);
    for (int each = 0; each < RING; each++) Py_VISIT((PyObject *)self->ring[each]);
    return 0;
}

/* Releases the table.  Delivered records stay delivered. */
static void unload(delivery *self) {
    Py_buffer rows = self->rows;
    memset(&self->rows, 0, sizeof self->rows);
    self->index = self->count = 0;
    self->loads++;
    if (rows.obj) PyBuffer_Release(&rows);
    Py_CLEAR(self->held);
    Py_CLEAR(self->from);
    Py_CLEAR(self->owner);
    for (int each = 0; each < RING; each++) {
        message *last = self->ring[each];
        if (last && Py_REFCNT((PyObject *)last) == 1) Py_CLEAR(last->fields.held);
    }
}

static int delivery_clear(delivery *self) {
    unload(self);
    Py_CLEAR(self->of);
    Py_CLEAR(self->until);
    Py_CLEAR(self->key_decoder);
    Py_CLEAR(self->value_decoder);
    self->is_given = false;
    Py_CLEAR(self->delivered_owner);
    for (int each = 0; each < RING; each++) Py_CLEAR(self->ring[each]);
    return 0;
}

static void delivery_dealloc(delivery *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    delivery_clear(self);
    FREE(type, self);
    Py_DECREF(type);
}

static PyObject *delivery_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    module_state *state = state_of_type(type);
    delivery *self = state ? (delivery *)ALLOC(type) : NULL;
    if (!self) return NULL;
    self->state = state;
    self->delivered_at_ms = NO_TIME;
    return (PyObject *)self;
}

/* Delivery(queue, lease, key_decoder, value_decoder) */
static int delivery_init(delivery *self, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *of, *until, *key_decoder, *value_decoder;
    if (!PyArg_ParseTuple(
            args, "O!O!OO", self->state->queue_type, &of, self->state->lease_type, &until, &key_decoder, &value_decoder))
        return -1;
    if (self->of) {
        PyErr_SetString(PyExc_TypeError, "Delivery.__init__ was called already");
        return -1;
    }
    self->of = (queue *)Py_NewRef(of);
    self->until = (lease *)Py_NewRef(until);
    self->key_decoder = Py_NewRef(key_decoder);
    self->value_decoder = Py_NewRef(value_decoder);
    return 0;
}

static bool is_made(delivery *self) {
    if (!self->of) PyErr_SetString(PyExc_TypeError, "Delivery.__init__ was not called");
    return self->of != NULL;
}

/* load(ownership, resets, topic, partition, data, rows, count) */
static PyObject *delivery_load(delivery *self, PyObject *args) {
    PyObject *owner, *topic, *partition, *data, *rows;
    long long resets, count;
    if (!PyArg_ParseTuple(
            args, "O!LOOOOL", self->state->ownership_type, &owner, &resets, &topic, &partition, &data, &rows, &count))
        return NULL;
    unload(self);
    origin *from = make_origin(self->state, topic, partition, self->key_decoder, self->value_decoder);
    held_bytes *held = from ? (held_bytes *)ALLOC(self->state->bytes_type) : NULL;
    Py_buffer table = {0};
    if (!held || PyObject_GetBuffer(data, &held->view, PyBUF_SIMPLE) < 0) goto failed;
    if (PyObject_GetBuffer(rows, &table, PyBUF_SIMPLE) < 0) goto failed;
    if (!has_rows(&table, 0, count)) goto failed;
    for (int64_t each = 0; each < count; each++) {
        if (!row_fits((const row_t *)table.buf + each, held->view.len)) goto failed;
    }
    self->owner = (ownership *)Py_NewRef(owner);
    self->resets = resets;
    self->from = from;
    self->held = held;
    self->rows = table;
    self->count = count;
    Py_RETURN_NONE;
failed:
    if (table.obj) PyBuffer_Release(&table);
    Py_XDECREF((PyObject *)held);
    Py_XDECREF((PyObject *)from);
    return NULL;
}

static PyObject *delivery_unload(delivery *self, PyObject *Py_UNUSED(ignored)) {
    unload(self);
    Py_RETURN_NONE;
}

static bool is_ready(const delivery *self) {
    return self->index < self->count && !self->is_failed && !self->of->is_ended && atomic_load(&self->owner->is_live) &&
           self->owner->resets == self->resets;
}

static const row_t *row_at(const delivery *self, int64_t index) { return (const row_t *)self->rows.buf + index; }

/* Counts the delivered records as consumed.  Returns false with an exception; the call may be repeated. */
static bool acknowledge(delivery *self) {
    if (!self->is_given) return true;
    self->of->unacknowledged_since_ms = NO_TIME;
    if (!done_with(self->delivered_owner, self->delivered_behind, self->delivered_resets)) return false;
    self->is_given = false;
    return true;
}

static PyObject *delivery_acknowledge(delivery *self, PyObject *Py_UNUSED(ignored)) {
    if (!is_made(self) || !acknowledge(self)) return NULL;
    Py_RETURN_NONE;
}

/* Counts the delivered records as not consumed, except those that acknowledge_through() acknowledged.  The next call
 * returns them. */
static PyObject *delivery_undeliver(delivery *self, PyObject *Py_UNUSED(ignored)) {
    if (!is_made(self)) return NULL;
    if (self->is_given) {
        self->of->unacknowledged_since_ms = NO_TIME;
        if (!undeliver(self->delivered_owner)) return NULL;
        self->is_given = false;
        if (self->delivered_load == self->loads) {
            self->index -= self->delivered_rows;
            while (self->index < self->count && row_at(self, self->index)->offset < consumed_offset(self->owner))
                self->index++;
        }
    }
    Py_RETURN_NONE;
}

/* acknowledge_through(deliveries, offset): the program has processed the records of that delivery up to this offset */
static PyObject *delivery_acknowledge_through(delivery *self, PyObject *args) {
    unsigned long long number;
    long long offset;
    if (!PyArg_ParseTuple(args, "KL", &number, &offset)) return NULL;
    if (self->is_given && number == self->deliveries && offset < self->delivered_behind) {
        if (self->delivered_owner->resets == self->delivered_resets && offset + 1 > consumed_offset(self->delivered_owner)) {
            mark_consumed(self->delivered_owner, offset + 1, self->delivered_resets);
            self->delivered_next = offset + 1;
        }
    }
    Py_RETURN_NONE;
}

/* Raises the error for a call while another one is running. */
static void *refuse(delivery *self, uint64_t number) {
    PyObject *done = PyObject_CallMethod((PyObject *)self, "_raise_concurrent_use", "O", self->inside == number ? Py_True : Py_False);
    if (done) PyErr_SetString(PyExc_SystemError, "_raise_concurrent_use() returned");
    Py_XDECREF(done);
    return NULL;
}

/* Calls a method without arguments that returns whether to continue: 1, 0, or -1 with an exception. */
static int ask(delivery *self, const char *method) {
    PyObject *found = PyObject_CallMethod((PyObject *)self, method, NULL);
    int is_true = found ? PyObject_IsTrue(found) : -1;
    Py_XDECREF(found);
    return is_true;
}

/* Makes a record ready.  1: done; 0: the stream has ended; -1: an exception. */
static int make_ready(delivery *self) {
    while (!is_ready(self)) {
        int more = ask(self, "_refill");
        if (more < 1) return more;
    }
    return 1;
}

/* A message object to fill; the ring has a reference, too. */
static message *fresh_message(delivery *self) {
    message *last = self->ring[self->turn];
    if (last && Py_REFCNT((PyObject *)last) == 1) {
        clear_objects(&last->fields);
    } else {
        if (last && !detach(&last->fields)) return NULL;
        message *made = (message *)ALLOC(self->state->message_type);
        if (!made) return NULL;
        made->from = (origin *)Py_NewRef((PyObject *)self->from);
        self->ring[self->turn] = made;
        Py_XDECREF((PyObject *)last);
        last = made;
    }
    self->turn = (self->turn + 1) % RING;
    Py_INCREF((PyObject *)last);
    return last;
}

/* Releasing the former references may run Python code; no record was delivered before. */
static void fill(const delivery *self, message *to, const row_t *row) {
    if (to->from != self->from) {
        origin *before = to->from;
        to->from = (origin *)Py_NewRef((PyObject *)self->from);
        Py_DECREF(before);
    }
    if (to->fields.held != self->held) {
        held_bytes *before = to->fields.held;
        to->fields.held = (held_bytes *)Py_NewRef((PyObject *)self->held);
        Py_XDECREF((PyObject *)before);
    }
    to->fields.row = *row;
}

/* Delivers the records that start with rows[index]: steps 4 to 6 of the head of this file.  1: delivered; 0: check again;
 * -1: an exception. */
static int give(delivery *self, int64_t rows) {
    ownership *owner = self->owner;
    uint64_t loads = self->loads;
    int is_ours = begin_delivery(owner, row_at(self, self->index)->offset);
    if (is_ours < 1) return is_ours;
    int64_t now_ms;
    bool is_read = lease_now(self->until, &now_ms);
    /* If the clock is in Python, a signal handler may have run and closed the connector. */
    if (!is_read || loads != self->loads || now_ms >= atomic_load(&self->until->until_ms)) {
        if (!is_read) {
            PyObject *type, *value, *trace;
            PyErr_Fetch(&type, &value, &trace);
            if (!undeliver(owner)) PyErr_Clear();
            PyErr_Restore(type, value, trace);
            return -1;
        }
        if (!undeliver(owner)) return -1;
        return loads != self->loads || ask(self, "_await_lease") >= 0 ? 0 : -1;
    }
    self->delivered_at_ms = self->of->unacknowledged_since_ms = now_ms;
    if (self->delivered_owner != owner) {
        ownership *before = self->delivered_owner;
        self->delivered_owner = (ownership *)Py_NewRef((PyObject *)owner);
        Py_XDECREF((PyObject *)before);
    }
    self->delivered_resets = self->resets;
    self->delivered_next = self->delivered_behind = row_at(self, self->index + rows - 1)->offset + 1;
    self->delivered_rows = rows;
    self->delivered_load = loads;
    self->index += rows;
    self->deliveries++;
    self->is_given = true;
    return 1;
}

static void *ended(delivery *self) {
    if (ask(self, "_raise_ended") >= 0) PyErr_SetString(PyExc_SystemError, "_raise_ended() returned");
    return NULL;
}

/* The next message, or the result of `wrap` for it (NULL: the message). */
static PyObject *deliver(delivery *self, PyObject *wrap) {
    uint64_t number = thread_number();
    if (self->inside) return refuse(self, number);
    self->inside = self->thread_id = number;
    PyObject *item = NULL;
    for (;;) {
        if (!acknowledge(self)) break;
        int more = make_ready(self);
        if (more < 1) {
            if (!more) ended(self);
            break;
        }
        uint64_t loads = self->loads;
        int64_t index = self->index;
        message *made = fresh_message(self);
        if (!made) break;
        if (loads != self->loads || index != self->index) {
            Py_DECREF((PyObject *)made);
            continue;
        }
        fill(self, made, row_at(self, index));
        item = (PyObject *)made;
        if (wrap) {
            item = PyObject_CallFunctionObjArgs(wrap, made, NULL);
            Py_DECREF((PyObject *)made);
            if (!item) break;
        }
        if (PyErr_CheckSignals() < 0) {
            Py_CLEAR(item);
            break;
        }
        int delivered = 0;
        if (loads == self->loads && index == self->index && is_ready(self)) delivered = give(self, 1);
        if (delivered > 0) break;
        Py_CLEAR(item);
        if (delivered < 0) break;
    }
    self->inside = NO_THREAD;
    return item;
}

/* take(wrap) -> the next message, or the result of `wrap` for it (None: the message); raises at the end of the stream */
static PyObject *delivery_take(delivery *self, PyObject *wrap) {
    return is_made(self) ? deliver(self, wrap == Py_None ? NULL : wrap) : NULL;
}

/* peek(is_wanted) -> the message that `take` would return, as a separate object (True if it is not wanted); None at the
 * end of the stream */
static PyObject *delivery_peek(delivery *self, PyObject *is_wanted) {
    if (!is_made(self)) return NULL;
    uint64_t number = thread_number();
    if (self->inside) return refuse(self, number);
    self->inside = self->thread_id = number;
    PyObject *found = NULL;
    while (acknowledge(self)) {
        int more = make_ready(self);
        if (!more) found = Py_NewRef(Py_None);
        if (more < 1) break;
        int is_ours = ask(self, "_await_lease");
        if (is_ours < 0) break;
        if (!is_ours || !is_ready(self)) continue;
        if (is_wanted != Py_True) {
            found = Py_NewRef(Py_True);
            break;
        }
        message *made = (message *)ALLOC(self->state->message_type);
        if (!made) break;
        made->from = (origin *)Py_NewRef((PyObject *)self->from);
        fill(self, made, row_at(self, self->index));
        found = (PyObject *)made;
        if (!detach(&made->fields)) Py_CLEAR(found);
        break;
    }
    self->inside = NO_THREAD;
    return found;
}

/* Returns the result of `make` for the next rows: make(data, rows as bytes, number of rows, topic, partition, number of
 * this delivery).  At least one row, then as many rows of the table as the two limits allow.  `max_bytes` counts the
 * bytes of keys and values. */
static PyObject *deliver_rows(delivery *self, int64_t max_rows, int64_t max_bytes, PyObject *make) {
    uint64_t number = thread_number();
    if (self->inside) return refuse(self, number);
    self->inside = self->thread_id = number;
    PyObject *item = NULL;
    for (;;) {
        if (!acknowledge(self)) break;
        int more = make_ready(self);
        if (more < 1) {
            if (!more) ended(self);
            break;
        }
        uint64_t loads = self->loads;
        int64_t index = self->index, rows = 0, bytes = 0;
        for (; rows < max_rows && index + rows < self->count; rows++) {
            const row_t *row = row_at(self, index + rows);
            bytes += (row->key_length > 0 ? row->key_length : 0) + (int64_t)(row->value_length > 0 ? row->value_length : 0);
            if (rows && bytes > max_bytes) break;
        }
        PyObject *table = PyBytes_FromStringAndSize((const char *)row_at(self, index), rows * (Py_ssize_t)sizeof(row_t));
        if (!table) break;
        item = PyObject_CallFunction(
            make, "ONLOOK", self->held->view.obj, table, (long long)rows, self->from->topic, self->from->partition,
            (unsigned long long)self->deliveries + 1);
        if (!item) break;
        if (PyErr_CheckSignals() < 0) {
            Py_CLEAR(item);
            break;
        }
        int delivered = 0;
        if (loads == self->loads && index == self->index && is_ready(self)) delivered = give(self, rows);
        if (delivered > 0) break;
        Py_CLEAR(item);
        if (delivered < 0) break;
    }
    self->inside = NO_THREAD;
    return item;
}

static PyObject *delivery_get_delivered(delivery *self, void *Py_UNUSED(closure)) {
    if (!self->is_given) Py_RETURN_NONE;
    return Py_BuildValue(
        "OLL", (PyObject *)self->delivered_owner, (long long)self->delivered_next, (long long)self->delivered_resets);
}

static PyObject *delivery_get_deliveries(delivery *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong(self->deliveries);
}

static PyObject *delivery_get_rows_delivered(delivery *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->index);
}

static PyObject *delivery_get_ready(delivery *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(self->of && is_ready(self));
}

static PyObject *delivery_get_inside(delivery *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong(self->inside);
}

static PyObject *delivery_get_thread(delivery *self, void *Py_UNUSED(closure)) {
    return PyLong_FromUnsignedLongLong(self->thread_id);
}

static PyObject *delivery_get_delivered_at(delivery *self, void *Py_UNUSED(closure)) {
    return time_or_none(self->delivered_at_ms);
}

static PyObject *delivery_get_failed(delivery *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(self->is_failed); }

static int delivery_set_failed(delivery *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (is_deleted(value)) return -1;
    int is_true = PyObject_IsTrue(value);
    if (is_true >= 0) self->is_failed = is_true;
    return is_true < 0 ? -1 : 0;
}

static PyGetSetDef delivery_getset[] = {
    {"delivered", (getter)delivery_get_delivered, NULL, NULL, NULL},
    {"deliveries", (getter)delivery_get_deliveries, NULL, NULL, NULL},
    {"rows_delivered", (getter)delivery_get_rows_delivered, NULL, NULL, NULL},
    {"is_ready", (getter)delivery_get_ready, NULL, NULL, NULL},
    {"inside", (getter)delivery_get_inside, NULL, NULL, NULL},
    {"thread_id", (getter)delivery_get_thread, NULL, NULL, NULL},
    {"delivered_at_ms", (getter)delivery_get_delivered_at, NULL, NULL, NULL},
    {"is_failed", (getter)delivery_get_failed, (setter)delivery_set_failed, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef delivery_methods[] = {
    {"load", (PyCFunction)delivery_load, METH_VARARGS, NULL},
    {"unload", (PyCFunction)delivery_unload, METH_NOARGS, NULL},
    {"acknowledge", (PyCFunction)delivery_acknowledge, METH_NOARGS, NULL},
    {"undeliver", (PyCFunction)delivery_undeliver, METH_NOARGS, NULL},
    {"acknowledge_through", (PyCFunction)delivery_acknowledge_through, METH_VARARGS, NULL},
    {"take", (PyCFunction)delivery_take, METH_O, NULL},
    {"peek", (PyCFunction)delivery_peek, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot delivery_slots[] = {
    {Py_tp_new, delivery_new},           {Py_tp_init, delivery_init},         {Py_tp_dealloc, delivery_dealloc},
    {Py_tp_traverse, delivery_traverse}, {Py_tp_clear, delivery_clear},       {Py_tp_methods, delivery_methods},
    {Py_tp_getset, delivery_getset},     {0, NULL},
};

static PyType_Spec delivery_spec = {
    .name = "zkconsumer.base._delivery.Delivery",
    .basicsize = sizeof(delivery),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = delivery_slots,
};

/* --- Iterator: __next__ without a bytecode -------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    delivery *from;
    PyObject *wrap; /* NULL: the messages themselves */
} iterator;

/* Iterator(delivery, wrap) */
static PyObject *iterator_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    module_state *state = state_of_type(type);
    PyObject *from, *wrap;
    if (!state || !PyArg_ParseTuple(args, "O!O", state->delivery_type, &from, &wrap)) return NULL;
    if (!is_made((delivery *)from)) return NULL;
    iterator *self = (iterator *)ALLOC(type);
    if (!self) return NULL;
    self->from = (delivery *)Py_NewRef(from);
    self->wrap = wrap == Py_None ? NULL : Py_NewRef(wrap);
    return (PyObject *)self;
}

static int iterator_traverse(iterator *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->from);
    Py_VISIT(self->wrap);
    return 0;
}

static int iterator_clear(iterator *self) {
    Py_CLEAR(self->from);
    Py_CLEAR(self->wrap);
    return 0;
}

static void iterator_dealloc(iterator *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    iterator_clear(self);
    FREE(type, self);
    Py_DECREF(type);
}

static PyObject *iterator_next(iterator *self) {
    if (!self->from) return NULL;
    Py_INCREF((PyObject *)self->from);
    PyObject *item = deliver(self->from, self->wrap);
    Py_DECREF((PyObject *)self->from);
    return item;
}

static PyType_Slot iterator_slots[] = {
    {Py_tp_new, iterator_new},
    {Py_tp_dealloc, iterator_dealloc},
    {Py_tp_traverse, iterator_traverse},
    {Py_tp_clear, iterator_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, iterator_next},
    {0, NULL},
};

static PyType_Spec iterator_spec = {
    .name = "zkconsumer.base._delivery.Iterator",
    .basicsize = sizeof(iterator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = iterator_slots,
};

/* --- BatchIterator: the same for many records at a time -------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    delivery *from;
    int64_t max_rows;
    int64_t max_bytes;
    PyObject *make;
} batch_iterator;

/* BatchIterator(delivery, max_rows, max_bytes, make) */
static PyObject *batches_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    module_state *state = state_of_type(type);
    PyObject *from, *make;
    long long max_rows, max_bytes;
    if (!state || !PyArg_ParseTuple(args, "O!LLO", state->delivery_type, &from, &max_rows, &max_bytes, &make)) return NULL;
    if (!is_made((delivery *)from)) return NULL;
    if (max_rows < 1 || max_bytes < 1) {
        PyErr_SetString(PyExc_ValueError, "max_rows and max_bytes must be at least 1");
        return NULL;
    }
    batch_iterator *self = (batch_iterator *)ALLOC(type);
    if (!self) return NULL;
    self->from = (delivery *)Py_NewRef(from);
    self->max_rows = max_rows;
    self->max_bytes = max_bytes;
    self->make = Py_NewRef(make);
    return (PyObject *)self;
}

static int batches_traverse(batch_iterator *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->from);
    Py_VISIT(self->make);
    return 0;
}

static int batches_clear(batch_iterator *self) {
    Py_CLEAR(self->from);
    Py_CLEAR(self->make);
    return 0;
}

static void batches_dealloc(batch_iterator *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    batches_clear(self);
    FREE(type, self);
    Py_DECREF(type);
}

static PyObject *batches_next(batch_iterator *self) {
    if (!self->from) return NULL;
    Py_INCREF((PyObject *)self->from);
    PyObject *item = deliver_rows(self->from, self->max_rows, self->max_bytes, self->make);
    Py_DECREF((PyObject *)self->from);
    return item;
}

static PyType_Slot batches_slots[] = {
    {Py_tp_new, batches_new},
    {Py_tp_dealloc, batches_dealloc},
    {Py_tp_traverse, batches_traverse},
    {Py_tp_clear, batches_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, batches_next},
    {0, NULL},
};

static PyType_Spec batches_spec = {
    .name = "zkconsumer.base._delivery.BatchIterator",
    .basicsize = sizeof(batch_iterator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = batches_slots,
};

/* --- the module ------------------------------------------------------------------------------------------------------ */

static int module_exec(PyObject *module);

#ifdef ZKCONSUMER_TEST_STEPS
static PyObject *set_step(PyObject *module, PyObject *function) {
    module_state *state = PyModule_GetState(module);
    PyObject *before = state->step;
    state->step = Py_NewRef(function);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}
#endif

static PyMethodDef module_methods[] = {
    {"calling_thread", calling_thread, METH_NOARGS, NULL},
#ifdef ZKCONSUMER_TEST_STEPS
    {"set_step", set_step, METH_O, NULL},
#endif
    {NULL, NULL, 0, NULL},
};

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->lease_type);
    Py_VISIT(state->queue_type);
    Py_VISIT(state->ownership_type);
    Py_VISIT(state->bytes_type);
    Py_VISIT(state->origin_type);
    Py_VISIT(state->message_type);
    Py_VISIT(state->delivery_type);
    Py_VISIT(state->iterator_type);
    Py_VISIT(state->batches_type);
    Py_VISIT(state->step);
    return 0;
}

static int module_clear(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->lease_type);
    Py_CLEAR(state->queue_type);
    Py_CLEAR(state->ownership_type);
    Py_CLEAR(state->bytes_type);
    Py_CLEAR(state->origin_type);
    Py_CLEAR(state->message_type);
    Py_CLEAR(state->delivery_type);
    Py_CLEAR(state->iterator_type);
    Py_CLEAR(state->batches_type);
    Py_CLEAR(state->step);
    return 0;
}

static void module_free(void *module) {
    module_state *state = PyModule_GetState(module);
    if (!state) return;
    module_clear(module);
    /* Instances of subclasses are compared with these types, so the types must exist as long as the module. */
    Py_CLEAR(state->key);
    Py_CLEAR(state->value);
    Py_CLEAR(state->offset);
    Py_CLEAR(state->topic);
    Py_CLEAR(state->partition);
    Py_CLEAR(state->timestamp);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    ZK_MODULE_GIL_SLOT
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_delivery",
    .m_doc = "The delivery of records, compiled.  Internal: see zkconsumer.kafka.record_delivery.",
    .m_size = sizeof(module_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

/* The module's state; for a subclass in Python, that of the first base type from this module. */
static module_state *state_of_type(PyTypeObject *type) {
    for (; type; type = (PyTypeObject *)PyType_GetSlot(type, Py_tp_base)) {
        if (!(PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE)) break;
        PyObject *module = PyType_GetModule(type);
        if (module && PyModule_GetDef(module) == &definition) return PyModule_GetState(module);
        PyErr_Clear();
    }
    PyErr_SetString(PyExc_SystemError, "a type that does not belong to this module");
    return NULL;
}

static int module_exec(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    bool done = intern(&state->key, "key") && intern(&state->value, "value") && intern(&state->offset, "offset") &&
                intern(&state->topic, "topic") && intern(&state->partition, "partition") &&
                intern(&state->timestamp, "timestamp");
    done = done && add_type(module, &lease_spec, &state->lease_type);
    done = done && add_type(module, &queue_spec, &state->queue_type);
    done = done && add_type(module, &ownership_spec, &state->ownership_type);
    done = done && add_type(module, &bytes_spec, &state->bytes_type);
    done = done && add_type(module, &origin_spec, &state->origin_type);
    done = done && add_type(module, &message_spec, &state->message_type);
    done = done && add_type(module, &delivery_spec, &state->delivery_type);
    done = done && add_type(module, &iterator_spec, &state->iterator_type);
    done = done && add_type(module, &batches_spec, &state->batches_type);
    return done ? 0 : -1;
}

PyMODINIT_FUNC PyInit__delivery(void) { return PyModuleDef_Init(&definition); }
