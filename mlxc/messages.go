package mlxc

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Error is a failure that MLX reported.
type Error struct {
	Op      string // the operation, with shapes and dtypes of its operands where it has any
	Message string // MLX's text
}

func (e *Error) Error() string { return e.Op + ": " + e.Message }

// messages keeps what mlx-c's error handler was told, by OS thread: MLX calls the handler on the thread whose call
// failed, and several threads may fail at once.
type messages struct {
	mu       sync.Mutex
	byThread map[uintptr]string
	self     uintptr // the address of pthread_self
}

// install replaces mlx-c's default handler, which ends the process.
func (m *messages) install(lib *library) error {
	self, err := purego.Dlsym(purego.RTLD_DEFAULT, "pthread_self")
	if err != nil {
		return fmt.Errorf("find pthread_self: %w", err)
	}
	m.self, m.byThread = self, map[uintptr]string{}
	handler := purego.NewCallback(func(text uintptr, _ unsafe.Pointer) uintptr {
		m.put(goString(text))
		return 0
	})
	lib.call(&lib.c.mlx_set_error_handler, handler, 0, 0)
	return nil
}

func (m *messages) thread() uintptr {
	id, _, _ := purego.SyscallN(m.self)
	return id
}

func (m *messages) put(text string) {
	id := m.thread()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byThread[id] = text
}

// sourcePosition is what the official library appends to each message: where in its own sources it was caught.
var sourcePosition = regexp.MustCompile(` at [^ ]+\.(?:cpp|h):\d+$`)

// take returns and forgets the latest message of the calling thread.
func (m *messages) take() string {
	id := m.thread()
	m.mu.Lock()
	defer m.mu.Unlock()
	text, ok := m.byThread[id]
	if !ok {
		return "failed without a message"
	}
	delete(m.byThread, id)
	return sourcePosition.ReplaceAllString(text, "")
}

// failure makes an error of the calling thread's latest message.
func (l *library) failure(op string) error {
	return &Error{Op: op, Message: l.messages.take()}
}

// AsError returns the MLX failure in err's chain, if there is one.
func AsError(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
