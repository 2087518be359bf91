/* The records that `KafkaConsumer.poll` returns, compiled: ConsumerRecord, and an iterator that makes one for each row.
 *
 * `zkconsumer/kafka/fetch/fetched_records.py` has the same class in Python, for where this module is missing.
 *
 * The headers of a record are created at the first access.  A record that the program keeps does not keep the bytes of
 * the whole fetch: two records later, or at the end of the iteration, its headers are copied (`detach`).  A record without
 * another reference is used again, and so are its key, its value (`filled_again`) and its offset (`set_again`).
 *
 * Everything is guarded by the global interpreter lock, which the package requires (`zkconsumer/platforms.py`). */

#include "zkconsumer_rows.h"

#include <stddef.h>
#include <structmember.h>
#include <string.h>

typedef struct {
    PyTypeObject *bytes_type, *source_type, *record_type, *iterator_type;
    Py_ssize_t start_of_bytes;
    bool has_known_digits;
} module_state;

/* --- Source: what the records of one batch have in common -------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    module_state *state;
    PyObject *topic;
    PyObject *partition;
    PyObject *leader_epoch; /* an integer or None */
} source;

static void source_dealloc(source *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_CLEAR(self->topic);
    Py_CLEAR(self->partition);
    Py_CLEAR(self->leader_epoch);
    FREE(type, self);
    Py_DECREF(type);
}

static PyType_Slot source_slots[] = {
    {Py_tp_dealloc, source_dealloc},
    {0, NULL},
};

static PyType_Spec source_spec = {
    .name = "zkconsumer.base._consumer_records.Source",
    .basicsize = sizeof(source),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = source_slots,
};

static source *make_source(module_state *state, PyObject *topic, PyObject *partition, PyObject *leader_epoch) {
    source *made = (source *)ALLOC(state->source_type);
    if (!made) return NULL;
    made->state = state;
    made->topic = Py_NewRef(topic);
    made->partition = Py_NewRef(partition);
    made->leader_epoch = Py_NewRef(leader_epoch);
    return made;
}

/* --- ConsumerRecord ---------------------------------------------------------------------------------------------------- */

/* `fields.row.key_length` and `value_length` are the sizes of the serialized fields, also if key and value are objects of a
 * deserializer.  `topic`, `partition`, `offset`, `fields.key` and `fields.value` are attributes of their own: the
 * interpreter reads such an attribute without a call. */
typedef struct {
    PyObject_HEAD
    source *from;
    PyObject *topic;
    PyObject *partition;
    PyObject *offset;
    record_fields fields;
} record;

static int record_traverse(record *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    return visit_fields(&self->fields, visit, arg);
}

static int record_clear(record *self) {
    /* The other fields stay: the record is still usable, and they refer to no record. */
    Py_CLEAR(self->fields.key);
    Py_CLEAR(self->fields.value);
    return 0;
}

static void record_dealloc(record *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    record_clear(self);
    Py_CLEAR(self->fields.headers);
    Py_CLEAR(self->fields.held);
    Py_CLEAR(self->offset);
    Py_CLEAR(self->partition);
    Py_CLEAR(self->topic);
    Py_CLEAR(self->from);
    FREE(type, self);
    Py_DECREF(type);
}

static PyObject *record_get_timestamp(record *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->fields.row.timestamp);
}

static PyObject *record_get_timestamp_type(record *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLong(self->fields.row.timestamp_type);
}

static PyObject *record_get_epoch(record *self, void *Py_UNUSED(closure)) { return Py_NewRef(self->from->leader_epoch); }

static PyObject *record_get_key_size(record *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(self->fields.row.key_length); }

static PyObject *record_get_value_size(record *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLong(self->fields.row.value_length);
}

static PyObject *record_get_headers(record *self, void *Py_UNUSED(closure)) { return headers_of(&self->fields); }

/* All fields, in the order of the constructor. */
static PyObject *fields_of(record *self) {
    PyObject *headers = record_get_headers(self, NULL), *found = NULL;
    if (headers && key_of(&self->fields) && value_of(&self->fields))
        found = Py_BuildValue(
            "OOLLiOOOOii", self->from->topic, self->from->partition, (long long)self->fields.row.offset,
            (long long)self->fields.row.timestamp, (int)self->fields.row.timestamp_type, self->fields.key, self->fields.value, headers,
            self->from->leader_epoch, (int)self->fields.row.key_length, (int)self->fields.row.value_length);
    Py_XDECREF(headers);
    return found;
}

static PyObject *record_richcompare(PyObject *self, PyObject *other, int operation) {
    if (Py_TYPE(self) != Py_TYPE(other) || (operation != Py_EQ && operation != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
    PyObject *left = fields_of((record *)self), *right = left ? fields_of((record *)other) : NULL;
    PyObject *found = right ? PyObject_RichCompare(left, right, operation) : NULL;
    Py_XDECREF(left);
    Py_XDECREF(right);
    return found;
}

static PyObject *record_repr(record *self) {
    PyObject *headers = record_get_headers(self, NULL), *found = NULL;
    if (headers && key_of(&self->fields) && value_of(&self->fields))
        found = PyUnicode_FromFormat(
            "ConsumerRecord(topic=%R, partition=%S, offset=%lld, timestamp=%lld, timestamp_type=%d, key=%R, value=%R, "
            "headers=%R, leader_epoch=%S, serialized_key_size=%d, serialized_value_size=%d)",
            self->from->topic, self->from->partition, (long long)self->fields.row.offset, (long long)self->fields.row.timestamp,
            (int)self->fields.row.timestamp_type, self->fields.key, self->fields.value, headers, self->from->leader_epoch,
            (int)self->fields.row.key_length, (int)self->fields.row.value_length);
    Py_XDECREF(headers);
    return found;
}

static PyObject *record_reduce(record *self, PyObject *Py_UNUSED(ignored)) {
    PyObject *fields = fields_of(self);
    return fields ? Py_BuildValue("ON", (PyObject *)Py_TYPE((PyObject *)self), fields) : NULL;
}

/* ConsumerRecord(topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch,
 * serialized_key_size, serialized_value_size) */
static PyObject *record_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {
        "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch",
        "serialized_key_size", "serialized_value_size", NULL};
    PyObject *topic, *partition, *key, *value, *headers, *epoch;
    long long offset, timestamp;
    int timestamp_type, key_size, value_size;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "OOLLiOOO!Oii", names, &topic, &partition, &offset, &timestamp, &timestamp_type, &key, &value,
            &PyTuple_Type, &headers, &epoch, &key_size, &value_size))
        return NULL;
    module_state *state = PyType_GetModuleState(type);
    source *from = state ? make_source(state, topic, partition, epoch) : NULL;
    record *self = from ? (record *)ALLOC(type) : NULL;
    if (!self) {
        Py_XDECREF((PyObject *)from);
        return NULL;
    }
    self->from = from;
    self->topic = Py_NewRef(topic);
    self->partition = Py_NewRef(partition);
    self->offset = PyLong_FromLongLong(offset);
    self->fields.key = Py_NewRef(key);
    self->fields.value = Py_NewRef(value);
    self->fields.headers = Py_NewRef(headers);
    self->fields.row.offset = offset;
    self->fields.row.timestamp = timestamp;
    self->fields.row.timestamp_type = timestamp_type;
    self->fields.row.key_length = key_size;
    self->fields.row.value_length = value_size;
    if (!self->offset) Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMemberDef record_members[] = {
    {"topic", T_OBJECT_EX, offsetof(record, topic), READONLY, "Name of the topic."},
    {"partition", T_OBJECT_EX, offsetof(record, partition), READONLY, "Number of the partition."},
    {"offset", T_OBJECT_EX, offsetof(record, offset), READONLY, "Offset of the record in its partition."},
    {"key", T_OBJECT_EX, offsetof(record, fields.key), READONLY, "The object of the deserializer, else bytes; None: null."},
    {"value", T_OBJECT_EX, offsetof(record, fields.value), READONLY, "The object of the deserializer, else bytes; None: null."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef record_getset[] = {
    {"timestamp", (getter)record_get_timestamp, NULL, "Milliseconds since 1970; -1 in message format 0.", NULL},
    {"timestamp_type", (getter)record_get_timestamp_type, NULL, "0 producer, 1 log append, -1 none.", NULL},
    {"headers", (getter)record_get_headers, NULL, "Tuples of name and bytes; from message format 2 on.", NULL},
    {"leader_epoch", (getter)record_get_epoch, NULL, "The leader epoch of the batch; None: unknown.", NULL},
    {"serialized_key_size", (getter)record_get_key_size, NULL, "Bytes of the key; -1: null.", NULL},
    {"serialized_value_size", (getter)record_get_value_size, NULL, "Bytes of the value; -1: null.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef record_methods[] = {
    {"__reduce__", (PyCFunction)record_reduce, METH_NOARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot record_slots[] = {
    {Py_tp_new, record_new},
    {Py_tp_dealloc, record_dealloc},
    {Py_tp_traverse, record_traverse},
    {Py_tp_clear, record_clear},
    {Py_tp_richcompare, record_richcompare},
    {Py_tp_hash, PyObject_HashNotImplemented},
    {Py_tp_repr, record_repr},
    {Py_tp_methods, record_methods},
    {Py_tp_members, record_members},
    {Py_tp_getset, record_getset},
    {Py_tp_doc, "One record, as org.apache.kafka.clients.consumer.ConsumerRecord."},
    {0, NULL},
};

static PyType_Spec record_spec = {
    .name = "zkconsumer.kafka.fetch.fetched_records.ConsumerRecord",
    .basicsize = sizeof(record),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = record_slots,
};

/* --- RecordIterator ---------------------------------------------------------------------------------------------------- */

#define RING 2

typedef struct {
    PyObject_HEAD
    source *from;
    held_bytes *held;
    Py_buffer rows;
    int64_t first; /* the row whose objects are the first ones of `keys` and `values` */
    int64_t index;
    int64_t end;
    Py_ssize_t start_of_bytes; /* of the module's state */
    bool has_known_digits;     /* of the module's state */
    PyObject *keys;   /* a list with the object of each row; NULL: bytes */
    PyObject *values;

    /* The last records.  A program that iterates by `for` refers to the record before while it asks for the next one, so
     * there are two. */
    record *ring[RING];
    int turn;
} iterator;

static int iterator_traverse(iterator *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->keys);
    Py_VISIT(self->values);
    for (int each = 0; each < RING; each++) Py_VISIT((PyObject *)self->ring[each]);
    return 0;
}

/* Releases everything: the iteration is over.  Returns false if a kept record cannot be copied. */
RARE static bool finish(iterator *self) {
    bool is_done = true;
    self->index = self->end = 0;
    for (int each = 0; each < RING; each++) {
        record *last = self->ring[each];
        if (last && Py_REFCNT((PyObject *)last) > 1 && !detach(&last->fields)) is_done = false;
        Py_CLEAR(self->ring[each]);
    }
    Py_buffer rows = self->rows;
    memset(&self->rows, 0, sizeof self->rows);
    if (rows.obj) PyBuffer_Release(&rows);
    Py_CLEAR(self->held);
    Py_CLEAR(self->from);
    Py_CLEAR(self->keys);
    Py_CLEAR(self->values);
    return is_done;
}

static int iterator_clear(iterator *self) {
    if (!finish(self)) PyErr_Clear(); /* that record keeps the bytes */
    return 0;
}

static void iterator_dealloc(iterator *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    PyObject *error_type, *error, *trace;
    PyErr_Fetch(&error_type, &error, &trace);
    iterator_clear(self);
    PyErr_Restore(error_type, error, trace);
    FREE(type, self);
    Py_DECREF(type);
}

static bool is_list_of(PyObject *objects, int64_t count) {
    if (objects == Py_None) return true;
    if (PyList_Check(objects) && PyList_Size(objects) >= count) return true;
    PyErr_SetString(PyExc_ValueError, "a list with an object for each row, or None");
    return false;
}

/* RecordIterator(topic, partition, leader_epoch, data, rows, first, low, high, keys, values): the rows from first + low to
 * first + high; keys and values are lists with the objects of the rows from first on, or None */
static PyObject *iterator_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *topic, *partition, *epoch, *data, *rows, *keys, *values;
    long long first, low, high;
    if (!PyArg_ParseTuple(
            args, "OOOOOLLLOO", &topic, &partition, &epoch, &data, &rows, &first, &low, &high, &keys, &values))
        return NULL;
    if (first < 0 || low < 0 || low > high || high > INT32_MAX || first > INT32_MAX || !is_list_of(keys, high) ||
        !is_list_of(values, high)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the bounds are not ascending");
        return NULL;
    }
    module_state *state = PyType_GetModuleState(type);
    iterator *self = state ? (iterator *)ALLOC(type) : NULL;
    if (!self) return NULL;
    self->from = make_source(state, topic, partition, epoch);
    self->held = self->from ? (held_bytes *)ALLOC(state->bytes_type) : NULL;
    if (!self->held || PyObject_GetBuffer(data, &self->held->view, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(rows, &self->rows, PyBUF_SIMPLE) < 0 ||
        !has_rows(&self->rows, first + low, first + high)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    self->start_of_bytes = state->start_of_bytes;
    self->has_known_digits = state->has_known_digits;
    self->first = first;
    self->index = first + low;
    self->end = first + high;
    self->keys = keys == Py_None ? NULL : Py_NewRef(keys);
    self->values = values == Py_None ? NULL : Py_NewRef(values);
    return (PyObject *)self;
}

/* Where the bytes of a bytes object begin in it, or 0 if `filled_again` must not be used with this interpreter.
 *
 * CPython keeps the hash of a bytes object, -1 if it has none yet, in front of its bytes.  This is no part of the C API,
 * so it is examined with an object of our own when the module starts. */
static Py_ssize_t start_of_bytes(void) {
    PyObject *probe = PyBytes_FromStringAndSize("probe a", 7), *other = PyBytes_FromStringAndSize("probe b", 7);
    Py_ssize_t start = probe && other ? PyBytes_AsString(probe) - (char *)probe : 0;
    if (start < (Py_ssize_t)(sizeof(PyVarObject) + sizeof(Py_hash_t))) {
        start = 0;
    } else {
        Py_hash_t *kept = (Py_hash_t *)((char *)probe + start) - 1;
        bool is_hash = *kept == -1 && PyObject_Hash(probe) == *kept && *kept != -1;
        if (is_hash) {
            *kept = -1;
            memcpy((char *)probe + start, "probe b", 7);
        }
        if (!is_hash || PyObject_Hash(probe) != PyObject_Hash(other)) start = 0;
    }
    Py_XDECREF(probe);
    Py_XDECREF(other);
    return start;
}

/* `memcpy`, with two moves for most keys: a call costs more than they do. */
static inline void copy_field(char *to, const char *from, size_t length) {
    if (length >= 8 && length <= 16) {
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + length - 8, 8);
        memcpy(to, &first, 8);
        memcpy(to + length - 8, &last, 8);
    } else {
        memcpy(to, from, length);
    }
}

/* Puts a field of another row into the bytes object of a former one, if nothing else refers to that.  An allocation and
 * a release cost as much as all else that is done for a field of 100 bytes.  `start`: of `start_of_bytes`.
 *
 * Bytes of a length below 2 are shared by the whole interpreter. */
static inline bool filled_again(PyObject *former, Py_ssize_t start, const held_bytes *held, int32_t at, int32_t length) {
    if (!former || Py_REFCNT(former) != 1 || Py_TYPE(former) != &PyBytes_Type || Py_SIZE(former) != length || length < 2 || !start)
        return false;
    char *bytes = (char *)former + start;
    ((Py_hash_t *)bytes)[-1] = -1;
    copy_field(bytes, (const char *)held->view.buf + at, (size_t)length);
    return true;
}

/* The objects that the last record has may not, or cannot, be used again. */
RARE static bool set_new_field(PyObject **field, iterator *self, PyObject *objects, int32_t at, int32_t length) {
    PyObject *made = objects ? Py_XNewRef(PyList_GetItem(objects, self->index - self->first)) : bytes_or_none(self->held, at, length);
    PyObject *former = *field;
    *field = made;
    Py_XDECREF(former);
    return made;
}

/* Sets a key or a value: the object of a list, or bytes; false, with an exception, without memory. */
static inline bool set_field(PyObject **field, iterator *self, PyObject *objects, int32_t at, int32_t length) {
    if (!objects) {
        if (length < 0 ? *field == Py_None : filled_again(*field, self->start_of_bytes, self->held, at, length)) return true;
    }
    return set_new_field(field, self, objects, at, length);
}

#define DIGIT_BITS 30
#define DIGITS_OF(number) ((uint32_t *)((char *)(number) + sizeof(PyVarObject)))

/* Whether an integer of this value has one digit, or two (true); a digit has 30 bits. */
static inline bool has_two_digits(int64_t value) { return value >> DIGIT_BITS != 0; }

static inline void set_digits(PyObject *number, int64_t value) {
    DIGITS_OF(number)[0] = (uint32_t)(value & ((1 << DIGIT_BITS) - 1));
    if (has_two_digits(value)) DIGITS_OF(number)[1] = (uint32_t)(value >> DIGIT_BITS);
}

/* Whether an integer with this value gets another one by `set_digits`.  Returns -1, with an exception, without memory. */
static int is_set_by_digits(int64_t before, int64_t after) {
    PyObject *number = PyLong_FromLongLong(before);
    if (!number) return -1;
    bool is_known = DIGITS_OF(number)[0] == (uint32_t)(before & ((1 << DIGIT_BITS) - 1));
    is_known = is_known && (!has_two_digits(before) || DIGITS_OF(number)[1] == (uint32_t)(before >> DIGIT_BITS));
    if (is_known) {
        set_digits(number, after);
        is_known = PyLong_AsLongLong(number) == after;
    }
    Py_DECREF(number);
    return is_known;
}

/* Whether `set_again` may be used with this interpreter.
 *
 * CPython keeps an integer as digits of 30 bits after the head of the object.  This is no part of the C API, so it is
 * examined with objects of our own when the module starts. */
static bool has_known_digits(void) {
    int one = is_set_by_digits(0x12345678, 0x3A5A5A5A);
    int two = one > 0 ? is_set_by_digits(0x23456789LL << DIGIT_BITS | 0x12345678, 0x3CBA9876LL << DIGIT_BITS | 0x2DCBA987) : one;
    return two > 0;
}

/* Integers below this, or some of them, are shared by the whole interpreter. */
#define SHARED_BELOW (1 << 16)
#define TWO_DIGITS_BELOW (1LL << 2 * DIGIT_BITS)

static inline bool may_be_set(int64_t value) { return value >= SHARED_BELOW && value < TWO_DIGITS_BELOW; }

/* Gives the integer of a former row, `before`, the value of another row, if nothing else refers to it.  As in
 * `filled_again`, this costs less than an allocation and a release. */
static inline bool set_again(PyObject *former, int64_t before, int64_t value) {
    if (!former || Py_REFCNT(former) != 1 || !may_be_set(before) || !may_be_set(value)) return false;
    if (has_two_digits(before) != has_two_digits(value)) return false;
    set_digits(former, value);
    return true;
}

/* The integer that the record has may not be used again. */
RARE static bool set_new_offset(record *self, int64_t offset) {
    PyObject *former = self->offset;
    self->offset = PyLong_FromLongLong(offset);
    Py_XDECREF(former);
    return self->offset != NULL;
}

/* Sets the offset; `fields.row` is still the former row.  Returns false, with an exception, without memory. */
static inline bool set_offset(record *self, int64_t offset, bool may_set_again) {
    if (may_set_again && set_again(self->offset, self->fields.row.offset, offset)) return true;
    return set_new_offset(self, offset);
}

/* Whether the record can be filled at once: only the ring refers to it, and nothing of it must be released before. */
static inline bool is_ready(const iterator *self, const record *last) {
    return last && Py_REFCNT((PyObject *)last) == 1 && !self->keys && !self->values && !last->fields.headers;
}

/* A record to fill; the ring has a reference, too.  It may have bytes of a former row, whose release runs no code. */
RARE static record *fresh_record(iterator *self) {
    int64_t index = self->index;
    record *made = self->ring[self->turn];
    if (made && Py_REFCNT((PyObject *)made) == 1) {
        if (self->keys) Py_CLEAR(made->fields.key);
        if (self->values) Py_CLEAR(made->fields.value);
        Py_CLEAR(made->fields.headers);
    } else {
        record *last = made;
        if (last && !detach(&last->fields)) return NULL;
        made = (record *)ALLOC(self->from->state->record_type);
        if (!made) return NULL;
        made->from = (source *)Py_NewRef((PyObject *)self->from);
        made->topic = Py_NewRef(self->from->topic);
        made->partition = Py_NewRef(self->from->partition);
        made->fields.held = (held_bytes *)Py_NewRef((PyObject *)self->held);
        self->ring[self->turn] = made;
        Py_XDECREF((PyObject *)last);
    }
    /* The release of the former fields may have run code of the program, which may have used this iterator. */
    if (index != self->index || made != self->ring[self->turn] || Py_REFCNT((PyObject *)made) != 1) {
        PyErr_SetString(PyExc_RuntimeError, "the iterator was used while it was making a record");
        return NULL;
    }
    return made;
}

static PyObject *iterator_next(iterator *self) {
    if (self->index >= self->end) {
        finish(self); /* with an exception if it fails, which ends the iteration, too */
        return NULL;
    }
    record *made = self->ring[self->turn];
    if (!is_ready(self, made) && !(made = fresh_record(self))) return NULL;
    const row_t *row = (const row_t *)self->rows.buf + self->index;
    if (!row_fits(row, self->held->view.len)) return NULL;
    bool is_made = set_offset(made, row->offset, self->has_known_digits);
    made->fields.row = *row;
    is_made = is_made && set_field(&made->fields.key, self, self->keys, row->key_start, row->key_length) &&
                   set_field(&made->fields.value, self, self->values, row->value_start, row->value_length);
    if (!is_made) return NULL;
    self->turn ^= 1;
    self->index++;
    return Py_NewRef((PyObject *)made);
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
    .name = "zkconsumer.base._consumer_records.RecordIterator",
    .basicsize = sizeof(iterator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = iterator_slots,
};

/* --- the module -------------------------------------------------------------------------------------------------------- */

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    module_state *state = PyModule_GetState(module);
    Py_VISIT(state->bytes_type);
    Py_VISIT(state->source_type);
    Py_VISIT(state->record_type);
    Py_VISIT(state->iterator_type);
    return 0;
}

static int module_clear(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->bytes_type);
    Py_CLEAR(state->source_type);
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->iterator_type);
    return 0;
}

static void module_free(void *module) {
    if (PyModule_GetState(module)) module_clear(module);
}

static PyType_Spec bytes_spec = HELD_BYTES_SPEC("zkconsumer.base._consumer_records.HeldBytes");

static int module_exec(PyObject *module) {
    module_state *state = PyModule_GetState(module);
    state->start_of_bytes = start_of_bytes();
    state->has_known_digits = has_known_digits();
    bool done = !PyErr_Occurred() && add_type(module, &bytes_spec, &state->bytes_type);
    done = done && add_type(module, &source_spec, &state->source_type);
    done = done && add_type(module, &record_spec, &state->record_type);
    done = done && add_type(module, &iterator_spec, &state->iterator_type);
    return done ? 0 : -1;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    ZK_MODULE_GIL_SLOT
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_consumer_records",
    .m_doc = "The records of poll, compiled.  Internal: see zkconsumer.kafka.fetch.fetched_records.",
    .m_size = sizeof(module_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__consumer_records(void) { return PyModuleDef_Init(&definition); }
