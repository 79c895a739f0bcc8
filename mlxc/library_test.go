package mlxc

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	libmlx, path := os.Getenv("AXLM_LIBMLX"), os.Getenv("AXLM_MLXC")
	if !Loaded() || LibraryPath() != path {
		t.Errorf("loaded %q", LibraryPath())
	}
	if err := Load(libmlx, path); err != nil {
		t.Errorf("loading the same again: %v", err)
	}
	if err := Load(libmlx, path+".other"); err == nil || !strings.Contains(err.Error(), "already loaded") {
		t.Errorf("loading another: %v", err)
	}
	if !Has("mlx_add") || Has("mlx_no_such_function") {
		t.Error("Has is wrong about what the library exports")
	}
	if v := Version(); strings.Count(v, ".") < 2 {
		t.Errorf("version %q", v)
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := open("", ""); err == nil {
		t.Error("opened nothing")
	}
	for _, paths := range [][2]string{{"", "/nonexistent/libmlxc"}, {"/nonexistent/libmlx", os.Getenv("AXLM_MLXC")}} {
		if _, err := open(paths[0], paths[1]); err == nil || !strings.Contains(err.Error(), "load /nonexistent/libmlx") {
			t.Errorf("opening %v: %v", paths, err)
		}
	}
	// libmlx itself is a library without mlx-c's functions.
	if libmlx := os.Getenv("AXLM_LIBMLX"); libmlx != "" {
		if _, err := open("", libmlx); err == nil || !strings.Contains(err.Error(), "lacks mlx_") {
			t.Errorf("opening a library that is no mlx-c: %v", err)
		}
	}
}

// Before Load everything reports so; that needs a process in which nothing was loaded.
func TestWithoutALibrary(t *testing.T) {
	if os.Getenv("AXLM_TEST_UNLOADED") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWithoutALibrary$", "-test.v")
		cmd.Env = append(os.Environ(), "AXLM_TEST_UNLOADED=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if Loaded() || LibraryPath() != "" || Version() != "" || Has("mlx_add") {
		t.Error("something is loaded")
	}
	s := NewScope(Stream{})
	if s.Err() == nil || s.Add(s.Ones(Float32), s.Scalar(1, Float32)).Valid() || s.Split(Array{}, 2, 0) != nil ||
		s.ScalarLike(Array{}, 1).Valid() || s.Keep(Array{}).Valid() || s.Concatenate(0).Valid() || s.Call(nil) != nil {
		t.Error("a scope works")
	}
	s.Reset()
	var errs []error
	_, err := NewStream(Device{})
	errs = append(errs, err)
	_, err = DefaultStream(Device{})
	errs = append(errs, err)
	_, err = DefaultDevice()
	errs = append(errs, err)
	_, err = DeviceInfo(Device{})
	errs = append(errs, err)
	_, err = SetWiredLimit(0)
	errs = append(errs, err)
	_, err = Compile(swiglu, false)
	errs = append(errs, err)
	_, err = NewMetalKernel(KernelSource{})
	errs = append(errs, err)
	_, err = NewCUDAKernel(KernelSource{})
	errs = append(errs, err)
	_, _, err = LoadSafetensors("x", Stream{})
	errs = append(errs, err)
	_, err = Stream{}.Device()
	errs = append(errs, err, Eval(Array{1}), SetDefaultDevice(Device{}), SetDefaultStream(Stream{}), Stream{}.Synchronize(),
		ClearCache(), ResetPeakMemory(), EnableCompile(true), SaveSafetensors("x", nil, nil),
		SetArrayAt(1, Array{}), ForgetArrayAt(1))
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), errNotLoaded().Error()) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if GPUAvailable() || MetalKernelAvailable() || CUDAKernelAvailable() || ActiveMemory() != 0 {
		t.Errorf("something is available: %v", errors.Join(errs...))
	}
	(Array{1}).Free()
	(Stream{1}).Free()
}

// A failure must not end the process, also when nobody looks at it.
func TestErrorsAreKeptByThread(t *testing.T) {
	s := newScope(t)
	bad, other := s.Ones(Float32, 2), s.Ones(Float32, 3)
	s.begin()
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = bad.ctx, other.ctx, s.stream.ctx
	if !s.failed(&s.lib.c.mlx_add) {
		t.Fatal("an impossible addition worked")
	}
	if text := s.lib.messages.take(); !strings.Contains(text, "broadcast") {
		t.Errorf("got %q", text)
	}
	if text := s.lib.messages.take(); text != "failed without a message" {
		t.Errorf("a message was not forgotten: %q", text)
	}
	if s.out != 0 {
		t.Error("a failure has a result")
	}
}

func TestSourcePositionsAreCutOff(t *testing.T) {
	for text, want := range map[string]string{
		"[reshape] no at /a/b/ops.cpp:12":   "[reshape] no",
		"no at line:12":                     "no at line:12",
		"no at C:/x/mlx/c/private/a.h:1234": "no",
	} {
		if got := sourcePosition.ReplaceAllString(text, ""); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
