package errs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestKind(t *testing.T) {
	_, missing := os.Open(filepath.Join(t.TempDir(), "absent"))
	cases := []struct {
		name string
		err  error
		want string
	}{
		{"nil", nil, ""},
		{"value", Value("a %d", 1), "ValueError"},
		{"key", Key("a"), "KeyError"},
		{"key", Key("a"), "KeyError"},
		{"not found", NotFound("a"), "FileNotFoundError"},
		{"not implemented", NotImplemented("a"), "NotImplementedError"},
		{"memory", Memory("a"), "MemoryError"},
		{"os", OS("a"), "OSError"},
		{"internal", Internal("a"), "RuntimeError"},
		{"unknown family", fmt.Errorf("b: %w", UnknownFamily("a")), "UnknownFamilyError"},
		{"plain", errors.New("a"), "RuntimeError"},
		{"wrapped twice", fmt.Errorf("c: %w", fmt.Errorf("b: %w", Memory("a"))), "MemoryError"},
		{"joined", errors.Join(errors.New("a"), Key("b")), "KeyError"},
		{"outermost wins", Value("loading: %w", NotFound("a")), "ValueError"},
		{"missing file", fmt.Errorf("loading: %w", missing), "FileNotFoundError"},
		{"other file error", &fs.PathError{Op: "read", Path: "a", Err: syscall.EIO}, "OSError"},
		{"no memory", fmt.Errorf("mapping: %w", syscall.ENOMEM), "MemoryError"},
		{"with", With(KindOS, io.ErrUnexpectedEOF), "OSError"},
		{"with replaces", With(KindValue, Memory("a")), "ValueError"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Kind(c.err); got != c.want {
				t.Errorf("Kind(%v) = %q, want %q", c.err, got, c.want)
			}
		})
	}
}

func TestTextAndChain(t *testing.T) {
	err := Value("reading %s: %w", "x", io.ErrUnexpectedEOF)
	if got := err.Error(); got != "reading x: unexpected EOF" {
		t.Errorf("text %q", got)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("the cause is not reachable through the class")
	}
	var classed *Error
	if !errors.As(fmt.Errorf("b: %w", err), &classed) || classed.Class() != KindValue {
		t.Errorf("As gave %v", classed)
	}
	if With(KindOS, nil) != nil {
		t.Error("With(nil) is not nil")
	}
}

func TestTextNamesTheFile(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	_, missing := os.Open(absent)
	cases := []struct {
		name string
		err  error
		want string
	}{
		{"no file", Value("wrong"), "ValueError\x1fwrong"},
		{"missing", fmt.Errorf("loading: %w", NotFound("%s is not there", "/a/b")),
			"FileNotFoundError\x1floading: /a/b is not there\x1f2\x1f/a/b"},
		{"as the system says it", missing,
			"FileNotFoundError\x1f" + missing.Error() + "\x1f2\x1f" + absent},
		{"denied", OS("%w", &fs.PathError{Op: "open", Path: "/a", Err: syscall.EACCES}),
			"OSError\x1fopen /a: permission denied\x1f13\x1f/a"},
		{"ours before the system's", OS("packing %s: %w", "/a", &fs.PathError{Op: "write", Path: "/b", Err: syscall.EIO}),
			"OSError\x1fpacking /a: write /b: input/output error\x1f5\x1f/a"},
		{"renamed", &os.LinkError{Op: "rename", Old: "/a", New: "/b", Err: syscall.EACCES},
			"OSError\x1frename /a /b: permission denied\x1f13\x1f/b"},
		{"no number", OS("%s is not a regular file", "/a"), "OSError\x1f/a is not a regular file\x1f0\x1f/a"},
		{"another class", With(KindValue, missing), "ValueError\x1f" + missing.Error()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Text(c.err); got != c.want {
				t.Errorf("Text = %q, want %q", got, c.want)
			}
		})
	}
}
