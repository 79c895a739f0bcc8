package mlxc

import (
	"errors"
	"strings"
	"testing"
)

func TestErrorsNameTheOperationAndItsOperands(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		for _, c := range []struct {
			name string
			op   func()
			want []string
		}{
			{"two operands", func() { s.Multiply(s.Zeros(Float32, 2, 3), s.Zeros(BFloat16, 4)) },
				[]string{"multiply [2,3] float32 × [4] bfloat16: ", "broadcast"}},
			{"one operand", func() { s.Reshape(s.Zeros(Int32, 6), 4) }, []string{"reshape [6] int32: ", "reshape"}},
			{"no array", func() { s.Exp(Array{}) }, []string{"exp none: expected a non-empty mlx_array"}},
			{"an array and none", func() { s.Add(s.Ones(Float32), Array{}) },
				[]string{"add [] float32 × none: expected a non-empty mlx_array"}},
			{"a list", func() { s.Concatenate(0, s.Zeros(Float32, 1, 2), s.Zeros(Float32, 1, 3)) },
				[]string{"concatenate_axis [1,2] float32 × [1,3] float32: ", "concatenate"}},
			{"none in a list", func() { s.Stack(0, s.Ones(Float32), Array{}) },
				[]string{"stack_axis [] float32 × none: expected a non-empty mlx_array"}},
			{"several results", func() { s.Split(s.Zeros(Float32, 5), 2, 0) }, []string{"split [5] float32: "}},
			{"a mode", func() { s.Quantize(s.Zeros(Float32, 2, 64), 64, 4, "nonsense") },
				[]string{"quantize [2,64] float32: ", "nonsense"}},
			{"keep", func() { s.Keep(Array{}) }, []string{"keep: there is no array"}},
			{"dimensions", func() { s.Zeros(Float32, 1<<40) }, []string{"1099511627776 does not fit"}},
			{"data", func() { s.FromInt32s([]int32{1, 2, 3}, 2, 2) }, []string{"shape [2 2] from 3 elements of int32"}},
			{"bytes", func() { s.FromBytes([]byte{1, 2, 3}, Float32) }, []string{"3 bytes are no whole number of float32"}},
			{"scalar type", func() { s.ScalarInt(1, AnyDType) }, []string{"is no element type"}},
			{"type", func() { s.Zeros(AnyDType, 2) }, []string{"zeros: DType(-1) is no element type"}},
			{"conversion", func() { s.AsType(s.Ones(Float32), 99) }, []string{"astype: DType(99) is no element type"}},
			{"full type", func() { s.Zeros(14, 1) }, []string{"zeros: DType(14) is no"}},
			{"strides", func() { s.SliceStrided(s.Zeros(Float32, 4), []int{0}, []int{4}, nil) }, []string{"0 strides for 1 axes"}},
		} {
			c.op()
			if s.Err() == nil {
				t.Errorf("%s: no error", c.name)
				continue
			}
			for _, part := range c.want {
				if !strings.Contains(s.Err().Error(), part) {
					t.Errorf("%s: %q lacks %q", c.name, s.Err(), part)
				}
			}
			if strings.Contains(s.Err().Error(), ".cpp:") {
				t.Errorf("%s: %q tells a position in mlx-c's sources", c.name, s.Err())
			}
			s.Reset()
		}
	})
}

func TestErrorsStick(t *testing.T) {
	s := newScope(t)
	a := s.Ones(Float32, 2)
	s.Matmul(a, Array{})
	first := s.Err()
	if _, ok := AsError(first); !ok {
		t.Fatalf("%v is no *Error", first)
	}
	for name, got := range map[string]Array{
		"unary": s.Exp(a), "binary": s.Add(a, a), "make": s.Zeros(Float32, 2), "scalar": s.Scalar(1, Float32),
		"memory": s.FromFloat32s([]float32{1}), "list": s.Concatenate(0, a, a), "keep": s.Keep(a),
		"shape": s.Reshape(a, 2), "slice": s.Slice(a, []int{0}, []int{1}), "scalar like": s.ScalarLike(a, 1),
	} {
		if got.Valid() {
			t.Errorf("%s went on after an error", name)
		}
	}
	if s.Split(a, 2, 0) != nil {
		t.Error("split went on after an error")
	}
	s.Fail(errors.New("later"))
	s.Close()
	if s.Err() != first {
		t.Errorf("the first error gave way to %v", s.Err())
	}
	s.Reset()
	if s.Err() != nil || !s.Ones(Float32).Valid() {
		t.Errorf("reset left %v", s.Err())
	}
}

func TestScopeWithoutAStream(t *testing.T) {
	s := NewScope(Stream{})
	if s.Err() == nil || s.Ones(Float32).Valid() {
		t.Error("a scope without a stream works")
	}
	s.Reset()
	if s.Err() == nil {
		t.Error("reset made a scope without a stream usable")
	}
	s.Close()
}

func TestOwnership(t *testing.T) {
	s := newScope(t)
	a := s.Full(Float32, 3, 2)
	kept := s.Keep(s.Add(a, a))
	handed := s.Own(kept.Clone())
	early := s.Exp(a)
	before := len(s.owned)
	s.Release(early)
	s.Release(kept) // not the scope's
	s.Release(Array{})
	if len(s.owned) != before-1 {
		t.Errorf("release left %d of %d arrays", len(s.owned), before)
	}
	if s.Err() != nil || handed == kept {
		t.Fatalf("got %v, %v and %v", s.Err(), handed, kept)
	}
	s.Close()
	sameValues(t, values(t, s, kept), float64s(6, 6))
	kept.Free()
}

// A step builds its graph in a scope, keeps the result, closes the scope, evaluates and frees: nothing may be left.
func TestStepsLeakNothing(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		start := ActiveMemory()
		x := s.Keep(s.FromFloat32s(noise(64*64, 1), 64, 64))
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		s.Close()
		if err := Eval(x); err != nil {
			t.Fatal(err)
		}
		step := func() {
			y := s.RMSNorm(s.Matmul(x, s.Transpose(x)), Array{}, 1e-5)
			parts := s.Split(s.Multiply(y, s.Sigmoid(y)), 2, 1)
			z := s.SliceUpdate(s.Zeros(Float32, 128, 64), s.Concatenate(0, parts...), []int{0, 0}, []int{128, 32})
			kept := s.Keep(s.Softmax(z, -1, true))
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			s.Reset()
			if err := Eval(kept); err != nil {
				t.Fatal(err)
			}
			kept.Free()
		}
		step()
		before := ActiveMemory()
		for range 1000 {
			step()
		}
		if after := ActiveMemory(); after != before {
			t.Errorf("active memory went from %d to %d bytes in 1,000 steps", before, after)
		}
		x.Free()
		if after := ActiveMemory(); after != start {
			t.Errorf("%d bytes before all and %d after", start, after)
		}
	})
}

func TestOperationsDoNotAllocate(t *testing.T) {
	s := newScope(t)
	a, b := s.Keep(s.Ones(Float32, 4, 8)), s.Keep(s.Ones(Float32, 8))
	defer a.Free()
	defer b.Free()
	tokens := []int32{1, 2}
	step := func() {
		y := s.RMSNorm(a, b, 1e-5)
		y = s.Multiply(y, s.ScalarLike(y, 2))
		y = s.RoPE(s.Reshape(y, 1, 1, 4, 8), 8, false, 1e4, 1, 3, Array{})
		y = s.SDPA(y, y, y, 0.5, "causal", Array{}, Array{})
		y = s.Transpose(y, 0, 2, 1, 3)
		y = s.Concatenate(-1, s.Split(y, 2, -1)...)
		y = s.SliceUpdate(y, y, []int{0, 0, 0, 0}, []int{1, 4, 1, 8})
		s.Slice(y, []int{0, 0, 0, 0}, []int{1, 2, 1, 8})
		s.Argsort(s.FromInt32s(tokens), 0)
		s.Reset()
	}
	for range 3 {
		step()
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations in a step that was made before", n)
	}
}
