package mlxc

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func swiglu(s *Scope, in []Array) []Array {
	return []Array{s.Multiply(s.Multiply(in[0], s.Sigmoid(in[0])), in[1])}
}

func TestCompiledEqualsUncompiled(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		traces := 0
		fn, err := Compile(func(s *Scope, in []Array) []Array { traces++; return swiglu(s, in) }, true)
		if err != nil {
			t.Fatal(err)
		}
		defer fn.Free()
		for _, dims := range [][]int{{4, 8}, {4, 8}, {2, 3}} {
			n := dims[0] * dims[1]
			x, y := s.FromFloat32s(noise(n, 1), dims...), s.FromFloat32s(noise(n, 2), dims...)
			got := s.Call(fn, x, y)
			if s.Err() != nil || len(got) != 1 {
				t.Fatalf("got %v, %v", got, s.Err())
			}
			want := swiglu(s, []Array{x, y})
			if !slices.Equal(got[0].Shape(), dims) {
				t.Errorf("got %v, want shape %v", got[0], dims)
			}
			sameValues(t, values(t, s, got[0]), values(t, s, want[0]))
		}
		if traces != 1 {
			t.Errorf("a shapeless function was traced %d times", traces)
		}
	})
}

func TestCompiledPerShapeWithSeveralResults(t *testing.T) {
	s := newScope(t)
	var shapes [][]int
	fn, err := Compile(func(s *Scope, in []Array) []Array {
		shapes = append(shapes, in[0].Shape())
		return []Array{s.Sum(in[0], 0, false), in[1], s.Add(in[0], in[1])}
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer fn.Free()
	for _, n := range []int{2, 3, 2} {
		out := s.Call(fn, sequence(s, n), s.Full(Float32, 10, n))
		if s.Err() != nil || len(out) != 3 {
			t.Fatalf("got %v, %v", out, s.Err())
		}
		sameValues(t, values(t, s, out[0]), float64s(n*(n-1)/2))
		sameValues(t, values(t, s, out[1])[:1], float64s(10))
		sameValues(t, values(t, s, out[2])[:2], float64s(10, 11))
	}
	if len(shapes) != 2 {
		t.Errorf("traced for %v", shapes)
	}
}

func TestFailingTraces(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		cause := errors.New("the cause")
		for _, c := range []struct {
			name string
			body Traced
			want string
		}{
			{"an operation", func(s *Scope, in []Array) []Array { return []Array{s.Add(in[0], s.Zeros(Float32, 7))} },
				"trace [2] float32: add [2] float32 × [7] float32: "},
			{"the function itself", func(s *Scope, in []Array) []Array { s.Fail(cause); return in }, "trace [2] float32: the cause"},
			{"a panic", func(s *Scope, in []Array) []Array { return in[5:] }, "panic in a traced function"},
			{"no results", func(s *Scope, in []Array) []Array { return nil }, "returned no arrays"},
			{"none as a result", func(s *Scope, in []Array) []Array { return []Array{{}} }, "expected a non-empty mlx_array"},
		} {
			fn, err := Compile(c.body, false)
			if err != nil {
				t.Fatal(err)
			}
			out := s.Call(fn, s.Ones(Float32, 2))
			if out != nil || s.Err() == nil || !strings.Contains(s.Err().Error(), c.want) {
				t.Errorf("%s: got %v, %v, want %q", c.name, out, s.Err(), c.want)
			}
			if c.name == "the function itself" && !errors.Is(s.Err(), cause) {
				t.Errorf("%v does not wrap its cause", s.Err())
			}
			s.Reset()
			fn.Free()
			s.Call(fn, s.Ones(Float32, 2))
			if s.Err() == nil {
				t.Errorf("%s: called a freed function", c.name)
			}
			s.Reset()
			fn.Free()
		}
	})
}

func TestCallsLeakNothing(t *testing.T) {
	s := newScope(t)
	x := s.Keep(s.FromFloat32s(noise(256, 1)))
	defer x.Free()
	step := func() {
		fn, err := Compile(swiglu, false)
		if err != nil {
			t.Fatal(err)
		}
		kept := s.Keep(s.Call(fn, x, x)[0])
		s.Close()
		if err := Eval(kept); err != nil {
			t.Fatal(err)
		}
		kept.Free()
		fn.Free()
	}
	step()
	before := ActiveMemory()
	for range 100 {
		step()
	}
	if after := ActiveMemory(); after != before || len(s.lib.traced.byID) != 0 {
		t.Errorf("%d bytes became %d; %d functions are left", before, after, len(s.lib.traced.byID))
	}
}

func TestCompilationOnAndOff(t *testing.T) {
	s := newScope(t)
	defer func() {
		if err := EnableCompile(true); err != nil {
			t.Error(err)
		}
	}()
	count := func() (traces int) {
		fn, err := Compile(func(s *Scope, in []Array) []Array { traces++; return swiglu(s, in) }, true)
		if err != nil {
			t.Fatal(err)
		}
		defer fn.Free()
		for range 3 {
			out := s.Call(fn, s.Ones(Float32, 2), s.Ones(Float32, 2))
			if got := values(t, s, out[0])[0]; !near(got, 0.7310585786300049) {
				t.Errorf("got %v", got)
			}
		}
		return traces
	}
	if err := EnableCompile(false); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 3 {
		t.Errorf("with compilation off, the function ran %d times in 3 calls", n)
	}
	if err := EnableCompile(true); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 1 {
		t.Errorf("the function ran %d times in 3 calls", n)
	}
}
