/* Packet encryption, a burst a call. See srd/secure/aead.py, which has the interface, the same in Python, and the rules.

   Cryptography is libcrypto's, which is loaded when the module is: the system's, so that the distribution mends it, and
   nothing of it is needed to compile. What is called is the same in OpenSSL 3 and 4. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* As in srd.proto.wire.data and .protected; tests/srd/secure/test_aead.py compares packets with those of Python. */
enum { HEADER_BYTES = 56, TAG_BYTES = 16, OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES, IV_BYTES = 12, KEY_BYTES = 32 };
enum { FLAGS_AT = 2, PATH_AT = 3, SEQUENCE_AT = 4, CONTEXT_AT = 8, MESSAGE_AT = 28, IMMEDIATE_AT = 36 };
enum { IMMEDIATE = 4, ABORTED = 8, KEY_PHASE = 0x80 };
enum { AES_256_GCM = 1, CHACHA20_POLY1305 = 2 };

/* -- libcrypto ----------------------------------------------------------------------------------------------------- */

typedef struct evp_cipher_ctx_st EVP_CIPHER_CTX;
typedef struct evp_cipher_st EVP_CIPHER;
enum { EVP_CTRL_AEAD_GET_TAG = 0x10, EVP_CTRL_AEAD_SET_TAG = 0x11 };

static EVP_CIPHER_CTX *(*EVP_CIPHER_CTX_new)(void);
static void (*EVP_CIPHER_CTX_free)(EVP_CIPHER_CTX *);
static const EVP_CIPHER *(*EVP_aes_256_gcm)(void);
static const EVP_CIPHER *(*EVP_chacha20_poly1305)(void);
static const EVP_CIPHER *(*EVP_aes_256_ecb)(void);
static int (*EVP_CipherInit_ex)(EVP_CIPHER_CTX *, const EVP_CIPHER *, void *, const uint8_t *, const uint8_t *, int);
static int (*EVP_CipherUpdate)(EVP_CIPHER_CTX *, uint8_t *, int *, const uint8_t *, int);
static int (*EVP_CipherFinal_ex)(EVP_CIPHER_CTX *, uint8_t *, int *);
static int (*EVP_CIPHER_CTX_ctrl)(EVP_CIPHER_CTX *, int, int, void *);
static const char *(*OpenSSL_version)(int);

static const struct { const char *name; void **at; } SYMBOLS[] = {
    {"EVP_CIPHER_CTX_new", (void **)&EVP_CIPHER_CTX_new}, {"EVP_CIPHER_CTX_free", (void **)&EVP_CIPHER_CTX_free},
    {"EVP_aes_256_gcm", (void **)&EVP_aes_256_gcm}, {"EVP_chacha20_poly1305", (void **)&EVP_chacha20_poly1305},
    {"EVP_aes_256_ecb", (void **)&EVP_aes_256_ecb}, {"EVP_CipherInit_ex", (void **)&EVP_CipherInit_ex},
    {"EVP_CipherUpdate", (void **)&EVP_CipherUpdate}, {"EVP_CipherFinal_ex", (void **)&EVP_CipherFinal_ex},
    {"EVP_CIPHER_CTX_ctrl", (void **)&EVP_CIPHER_CTX_ctrl}, {"OpenSSL_version", (void **)&OpenSSL_version},
};

/* Load libcrypto; return 0, or -1 with ImportError set. */
static int load(void)
{
    const char *names[] = {"libcrypto.so.4", "libcrypto.so.3"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library && i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
        if (!(*SYMBOLS[i].at = dlsym(library, SYMBOLS[i].name)))
            library = NULL;
    if (!library)
        PyErr_SetString(PyExc_ImportError, "no libcrypto that has what is needed");
    return library ? 0 : -1;
}

/* -- one packet ---------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    EVP_CIPHER_CTX *packets, *immediates;
    uint8_t iv[IV_BYTES];
    uint8_t masked[4], mask[4]; /* the message whose immediate's mask this is */
    int has_mask, seals, busy;
} Keys;

/* Write the nonce: the IV, added bit by bit to the path (1 byte) and the path sequence (8 bytes). */
static void nonce_of(const Keys *self, int path, uint64_t sequence, uint8_t *nonce)
{
    memcpy(nonce, self->iv, IV_BYTES);
    nonce[3] ^= (uint8_t)path;
    for (int i = 0; i < 8; i++)
        nonce[4 + i] ^= (uint8_t)(sequence >> (56 - 8 * i));
}

/* Add the mask of its message to a header's immediate, if that is to be hidden. Return whether it worked. */
static int mask_immediate(Keys *self, uint8_t *header)
{
    if ((header[FLAGS_AT] & (IMMEDIATE | ABORTED)) != IMMEDIATE)
        return 1;
    if (!self->has_mask || memcmp(self->masked, header + MESSAGE_AT, 4)) {
        uint8_t block[16] = {0}, out[32];
        int length;
        memcpy(block + 12, header + MESSAGE_AT, 4);
        if (!EVP_CipherUpdate(self->immediates, out, &length, block, sizeof block))
            return 0;
        memcpy(self->masked, header + MESSAGE_AT, 4);
        memcpy(self->mask, out, 4);
        self->has_mask = 1;
    }
    for (int i = 0; i < 4; i++)
        header[IMMEDIATE_AT + i] ^= self->mask[i];
    return 1;
}

/* Encrypt a payload behind its header, and the tag behind that. Return whether it worked. */
static int seal_one(Keys *self, int path, uint64_t sequence, uint8_t *packet, const uint8_t *payload, int bytes)
{
    uint8_t nonce[IV_BYTES], *out = packet + HEADER_BYTES;
    int length;
    EVP_CIPHER_CTX *c = self->packets;
    nonce_of(self, path, sequence, nonce);
    return mask_immediate(self, packet) && EVP_CipherInit_ex(c, NULL, NULL, NULL, nonce, -1) &&
           EVP_CipherUpdate(c, NULL, &length, packet, HEADER_BYTES) &&
           (!bytes || EVP_CipherUpdate(c, out, &length, payload, bytes)) && EVP_CipherFinal_ex(c, out + bytes, &length) &&
           EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, out + bytes);
}

/* Decrypt the payload of a packet to `out`. Return whether it is authentic. */
static int open_one(Keys *self, int path, uint64_t sequence, const uint8_t *packet, int bytes, uint8_t *out)
{
    uint8_t nonce[IV_BYTES], tag[TAG_BYTES], rest[TAG_BYTES];
    const uint8_t *sealed = packet + HEADER_BYTES;
    int length;
    EVP_CIPHER_CTX *c = self->packets;
    nonce_of(self, path, sequence, nonce);
    memcpy(tag, sealed + bytes, TAG_BYTES);
    return EVP_CipherInit_ex(c, NULL, NULL, NULL, nonce, -1) &&
           EVP_CipherUpdate(c, NULL, &length, packet, HEADER_BYTES) &&
           (!bytes || EVP_CipherUpdate(c, out, &length, sealed, bytes)) &&
           EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) && EVP_CipherFinal_ex(c, rest, &length);
}

/* -- bursts -------------------------------------------------------------------------------------------------------- */

static uint32_t sequence_in(const uint8_t *header)
{
    const uint8_t *p = header + SEQUENCE_AT;
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Whether a packet is of one train with the first: version, type, key phase, path, context; and has the next number. */
static int continues(const uint8_t *first, const uint8_t *packet, uint32_t index)
{
    return packet[0] == first[0] && packet[1] == first[1] && !((packet[FLAGS_AT] ^ first[FLAGS_AT]) & KEY_PHASE) &&
           packet[PATH_AT] == first[PATH_AT] && sequence_in(packet) == sequence_in(first) + index &&
           !memcmp(packet + CONTEXT_AT, first + CONTEXT_AT, 8);
}

/* The payloads of a burst: each buffer is cut into pieces of `segment` bytes. */
typedef struct {
    Py_buffer *buffers;
    Py_ssize_t used, segment, packets, last;
} Payloads;

static void release(Payloads *payloads)
{
    for (Py_ssize_t i = 0; i < payloads->used; i++)
        PyBuffer_Release(&payloads->buffers[i]);
    PyMem_Free(payloads->buffers);
}

/* Take the buffers of a list; return 0, or -1 with an exception set. Only the last piece may be shorter. */
static int take(Payloads *payloads, PyObject *list, Py_ssize_t segment)
{
    Py_ssize_t count = PyList_Size(list);
    payloads->segment = segment;
    if (count < 1 || segment < 0) {
        PyErr_SetString(PyExc_ValueError, "a burst has a list of payloads, of 0 bytes or more");
        return -1;
    }
    if (!(payloads->buffers = PyMem_Calloc((size_t)count, sizeof(Py_buffer)))) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_buffer *buffer = &payloads->buffers[i];
        if (PyObject_GetBuffer(PyList_GET_ITEM(list, i), buffer, PyBUF_SIMPLE) < 0)
            return -1;
        payloads->used++;
        Py_ssize_t whole = segment ? buffer->len / segment : 0, rest = buffer->len - whole * segment;
        if ((i < count - 1 && (rest || (segment && !whole))) || (!segment && buffer->len)) {
            PyErr_SetString(PyExc_ValueError, "a payload has another length, and is not the last");
            return -1;
        }
        payloads->packets += rest || !whole ? whole + 1 : whole;
        payloads->last = rest || !whole ? rest : segment;
    }
    return 0;
}

/* Encrypt a burst. Return its size, or -1: libcrypto has failed. */
static Py_ssize_t seal_all(Keys *self, const Payloads *from, uint8_t *out, int path, uint64_t sequence, uint8_t phase)
{
    uint8_t *start = out;
    for (Py_ssize_t i = 0; i < from->used; i++) {
        const uint8_t *payload = from->buffers[i].buf;
        Py_ssize_t left = from->buffers[i].len;
        do {
            Py_ssize_t bytes = left < from->segment ? left : from->segment;
            out[FLAGS_AT] |= phase;
            if (!seal_one(self, path, sequence++, out, payload, (int)bytes))
                return -1;
            payload += bytes;
            left -= bytes;
            out += bytes + OVERHEAD_BYTES;
        } while (left);
    }
    return out - start;
}

static int begin(Keys *self, int seals, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given != wanted)
        PyErr_Format(PyExc_TypeError, "%zd arguments, not %zd", wanted, given);
    else if (self->seals != seals)
        PyErr_SetString(PyExc_ValueError, "keys either seal or open");
    else if (self->busy)
        PyErr_SetString(PyExc_RuntimeError, "these keys are in use in another thread");
    else
        return 0;
    return -1;
}

PyDoc_STRVAR(seal_doc, "seal(packets, payloads, segment_bytes, path, path_sequence, phase) -> size of all; see "
                       "srd.secure.aead.");

static PyObject *keys_seal(Keys *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (begin(self, 1, nargs, 6) < 0)
        return NULL;
    Py_ssize_t segment = PyLong_AsSsize_t(args[2]), size = -1;
    int path = (int)PyLong_AsLong(args[3]);
    uint64_t sequence = PyLong_AsUnsignedLongLong(args[4]);
    uint8_t phase = (uint8_t)PyLong_AsLong(args[5]);
    if (PyErr_Occurred())
        return NULL;
    Py_buffer packets;
    if (PyObject_GetBuffer(args[0], &packets, PyBUF_WRITABLE) < 0)
        return NULL;
    Payloads payloads = {0};
    if (take(&payloads, args[1], segment) == 0) {
        Py_ssize_t needed = (payloads.packets - 1) * (segment + OVERHEAD_BYTES) + payloads.last + OVERHEAD_BYTES;
        if (packets.len < needed || segment > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "%zd bytes have no room for %zd", packets.len, needed);
        } else {
            self->busy = 1;
            Py_BEGIN_ALLOW_THREADS
            size = seal_all(self, &payloads, packets.buf, path, sequence, phase);
            Py_END_ALLOW_THREADS
            self->busy = 0;
            if (size < 0)
                PyErr_SetString(PyExc_RuntimeError, "libcrypto has failed to encrypt");
        }
    }
    release(&payloads);
    PyBuffer_Release(&packets);
    return size < 0 ? NULL : PyLong_FromSsize_t(size);
}

/* What to open: `count` packets of `size` bytes, one every `stride` bytes; the last one has `last` bytes. */
typedef struct { Py_ssize_t start, stride, size, count, last; } Run;

static Py_ssize_t open_all(Keys *self, const uint8_t *in, const Run *run, uint64_t number, uint8_t *out, uint8_t *headers)
{
    for (Py_ssize_t i = 0; i < run->count; i++) {
        const uint8_t *packet = in + i * run->stride;
        int bytes = (int)((i == run->count - 1 ? run->last : run->size) - OVERHEAD_BYTES);
        uint8_t *header = headers + i * HEADER_BYTES;
        if (!continues(in, packet, (uint32_t)i) || !open_one(self, in[PATH_AT], number + (uint64_t)i, packet, bytes, out))
            return i;
        memcpy(header, packet, HEADER_BYTES);
        header[FLAGS_AT] &= (uint8_t)~KEY_PHASE;
        if (!mask_immediate(self, header))
            return i;
        out += bytes;
    }
    return run->count;
}

static int fits(const Run *run, const Py_buffer *packets, const Py_buffer *out, const Py_buffer *headers)
{
    return run->count > 0 && run->start >= 0 && run->size >= OVERHEAD_BYTES && run->size <= INT32_MAX &&
           run->last >= OVERHEAD_BYTES && run->last <= run->size && run->stride >= run->size &&
           run->count <= PY_SSIZE_T_MAX / run->stride - 1 &&
           run->start <= packets->len - run->last - (run->count - 1) * run->stride &&
           out->len >= (run->count - 1) * (run->size - OVERHEAD_BYTES) + run->last - OVERHEAD_BYTES &&
           headers->len >= run->count * HEADER_BYTES;
}

PyDoc_STRVAR(open_doc, "open_untrusted(packets, start, stride, size_bytes, count, last_bytes, number, out, headers) -> "
                       "packets that are authentic; see srd.secure.aead.");

static PyObject *keys_open(Keys *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (begin(self, 0, nargs, 9) < 0)
        return NULL;
    Run run = {PyLong_AsSsize_t(args[1]), PyLong_AsSsize_t(args[2]), PyLong_AsSsize_t(args[3]),
               PyLong_AsSsize_t(args[4]), PyLong_AsSsize_t(args[5])};
    uint64_t number = PyLong_AsUnsignedLongLong(args[6]);
    if (PyErr_Occurred())
        return NULL;
    Py_buffer packets, out, headers;
    Py_ssize_t kept = -1;
    if (PyObject_GetBuffer(args[0], &packets, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(args[7], &out, PyBUF_WRITABLE) == 0) {
        if (PyObject_GetBuffer(args[8], &headers, PyBUF_WRITABLE) == 0) {
            if (!fits(&run, &packets, &out, &headers)) {
                PyErr_SetString(PyExc_ValueError, "the packets exceed the buffers");
            } else {
                self->busy = 1;
                Py_BEGIN_ALLOW_THREADS
                kept = open_all(self, (const uint8_t *)packets.buf + run.start, &run, number, out.buf, headers.buf);
                Py_END_ALLOW_THREADS
                self->busy = 0;
            }
            PyBuffer_Release(&headers);
        }
        PyBuffer_Release(&out);
    }
    PyBuffer_Release(&packets);
    return kept < 0 ? NULL : PyLong_FromSsize_t(kept);
}

/* -- the type ------------------------------------------------------------------------------------------------------ */

static int keys_init(Keys *self, PyObject *args, PyObject *options)
{
    static char *names[] = {"suite", "key", "iv", "immediates_key", "seals", NULL};
    int suite, seals;
    Py_buffer key, iv, immediates;
    if (self->packets) {
        PyErr_SetString(PyExc_TypeError, "keys are made once");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, options, "$iy*y*y*p", names, &suite, &key, &iv, &immediates, &seals))
        return -1;
    const EVP_CIPHER *cipher = suite == AES_256_GCM         ? EVP_aes_256_gcm()
                               : suite == CHACHA20_POLY1305 ? EVP_chacha20_poly1305()
                                                            : NULL;
    int is_valid = cipher && key.len == KEY_BYTES && iv.len == IV_BYTES && immediates.len == KEY_BYTES;
    if (is_valid) {
        memcpy(self->iv, iv.buf, IV_BYTES);
        self->seals = seals;
        self->packets = EVP_CIPHER_CTX_new();
        self->immediates = EVP_CIPHER_CTX_new();
        is_valid = self->packets && self->immediates &&
                   EVP_CipherInit_ex(self->packets, cipher, NULL, key.buf, NULL, seals) &&
                   EVP_CipherInit_ex(self->immediates, EVP_aes_256_ecb(), NULL, immediates.buf, NULL, 1);
    }
    PyBuffer_Release(&key);
    PyBuffer_Release(&iv);
    PyBuffer_Release(&immediates);
    if (!is_valid)
        PyErr_SetString(PyExc_ValueError, "no keys of a suite that libcrypto has");
    return is_valid ? 0 : -1;
}

static void keys_free(Keys *self)
{
    EVP_CIPHER_CTX_free(self->packets); /* which erases the keys */
    EVP_CIPHER_CTX_free(self->immediates);
    explicit_bzero(self->iv, IV_BYTES);
    explicit_bzero(self->mask, sizeof self->mask);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef METHODS[] = {
    {"seal", (PyCFunction)(void (*)(void))keys_seal, METH_FASTCALL, seal_doc},
    {"open_untrusted", (PyCFunction)(void (*)(void))keys_open, METH_FASTCALL, open_doc},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject KEYS = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "srd.secure._aead.Keys",
    .tp_basicsize = sizeof(Keys),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The keys of one direction and generation: they either seal packets, or open them.",
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)keys_init,
    .tp_dealloc = (destructor)keys_free,
    .tp_methods = METHODS,
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "srd.secure._aead", .m_doc = "Packet encryption, a burst a call.", .m_size = -1};

PyMODINIT_FUNC PyInit__aead(void)
{
    if (load() < 0 || PyType_Ready(&KEYS) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&MODULE);
    if (!module || PyModule_AddObjectRef(module, "Keys", (PyObject *)&KEYS) < 0 ||
        PyModule_AddStringConstant(module, "LIBRARY", OpenSSL_version(0)) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
