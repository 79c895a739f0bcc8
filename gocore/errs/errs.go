// Package errs gives errors the Python exception class under which the face
// re-raises them. A kind sticks to an error through any number of %w wraps.
package errs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// separator stands between the parts of a Text. No message holds one.
const separator = "\x1f"

// Names of the Python classes that Kind can return, Python's own except the last.
const (
	KindValue          = "ValueError"
	KindKey            = "KeyError"
	KindNotFound       = "FileNotFoundError"
	KindNotImplemented = "NotImplementedError"
	KindMemory         = "MemoryError"
	KindOS             = "OSError"
	KindRuntime        = "RuntimeError"
	// KindUnknownFamily is the face's own class, a ValueError: the model may be
	// in order, but its family is not one of the core's.
	KindUnknownFamily = "UnknownFamilyError"
)

// Error is an error with a Python class. Its text is the cause's text alone:
// the class travels beside it, never inside it.
type Error struct {
	kind  string
	path  string // of the file, where the error is about one and its cause does not tell
	cause error
}

// Error returns the message without the class.
func (e *Error) Error() string { return e.cause.Error() }

// Unwrap lets errors.Is and errors.As look through the class.
func (e *Error) Unwrap() error { return e.cause }

// Class returns the Python class name.
func (e *Error) Class() string { return e.kind }

// Value makes a ValueError: the user's argument or file has a wrong content.
func Value(format string, args ...any) error { return classed(KindValue, format, args) }

// Key makes a KeyError: a configuration lacks a key, where mlx_lm says it so.
func Key(format string, args ...any) error { return classed(KindKey, format, args) }

// NotFound makes a FileNotFoundError: a file or folder is missing. The first
// argument is its path.
func NotFound(format string, args ...any) error { return ofFile(KindNotFound, format, args) }

// NotImplemented makes a NotImplementedError: valid, but not supported yet.
func NotImplemented(format string, args ...any) error {
	return classed(KindNotImplemented, format, args)
}

// Memory makes a MemoryError.
func Memory(format string, args ...any) error { return classed(KindMemory, format, args) }

// OS makes an OSError: the system refused an operation on a file that exists.
// The first argument is its path, or an error that names it.
func OS(format string, args ...any) error { return ofFile(KindOS, format, args) }

// UnknownFamily makes an UnknownFamilyError.
func UnknownFamily(format string, args ...any) error {
	return classed(KindUnknownFamily, format, args)
}

// Internal makes a RuntimeError: a fault of ours or of MLX, not of the user.
func Internal(format string, args ...any) error { return classed(KindRuntime, format, args) }

// With gives err the class of kind, one of the Kind constants, in place of
// what it had; nil stays nil.
func With(kind string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{kind: kind, cause: err}
}

// Kind returns the Python class name of err: that of the outermost error with
// a class in its wrap tree, else one that the standard library's error implies
// (a missing file, any other file error, no memory), else "RuntimeError".
// Kind(nil) is "".
func Kind(err error) string {
	if err == nil {
		return ""
	}
	var found *Error
	if errors.As(err, &found) {
		return found.kind
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return KindNotFound
	case errors.Is(err, syscall.ENOMEM):
		return KindMemory
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return KindRuntime
	}
	var path *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	if errors.As(err, &path) || errors.As(err, &link) || errors.As(err, &call) {
		return KindOS
	}
	return KindRuntime
}

// Text returns what crosses to Python: the class, the message and, of an error
// of a file, the system's number of the error and the path, each after a unit
// separator (0x1F).
func Text(err error) string {
	kind := Kind(err)
	text := kind + separator + err.Error()
	if kind != KindNotFound && kind != KindOS {
		return text
	}
	number, path := file(err)
	if number == 0 && kind == KindNotFound {
		number = syscall.ENOENT
	}
	return text + separator + strconv.Itoa(int(number)) + separator + path
}

// file returns the system's number of an error, 0 if it has none, and the path
// that it is about, "" if it names none.
func file(err error) (syscall.Errno, string) {
	var number syscall.Errno
	errors.As(err, &number)
	var classed *Error
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &classed) && classed.path != "":
		return number, classed.path
	case errors.As(err, &path):
		return number, path.Path
	case errors.As(err, &link):
		return number, link.New
	}
	return number, ""
}

func classed(kind, format string, args []any) error {
	return &Error{kind: kind, cause: fmt.Errorf(format, args...)}
}

func ofFile(kind, format string, args []any) error {
	made := &Error{kind: kind, cause: fmt.Errorf(format, args...)}
	if len(args) > 0 {
		made.path, _ = args[0].(string)
	}
	return made
}
