package mlxc

import (
	"slices"
	"testing"
)

func TestMakingArrays(t *testing.T) {
	expect(t, []expectation{
		{"arange", func(s *Scope) Array { return s.Arange(1, 3, 0.5, Float32) }, []int{4}, Float32,
			[]float64{1, 1.5, 2, 2.5}},
		{"arange of integers", func(s *Scope) Array { return s.Arange(5, 0, -2, Int32) }, []int{3}, Int32,
			float64s(5, 3, 1)},
		{"zeros", func(s *Scope) Array { return s.Zeros(Float16, 1, 2) }, []int{1, 2}, Float16, float64s(0, 0)},
		{"zeros without dimensions", func(s *Scope) Array { return s.Zeros(Float32) }, []int{}, Float32, float64s(0)},
		{"ones", func(s *Scope) Array { return s.Ones(Int32, 2) }, []int{2}, Int32, float64s(1, 1)},
		{"full", func(s *Scope) Array { return s.Full(BFloat16, -1.5, 2, 1) }, []int{2, 1}, BFloat16,
			[]float64{-1.5, -1.5}},
		{"scalar", func(s *Scope) Array { return s.Scalar(0.1, Float32) }, []int{}, Float32, float64s(float32(0.1))},
		{"scalar float16", func(s *Scope) Array { return s.Scalar(-0.75, Float16) }, []int{}, Float16, []float64{-0.75}},
		{"scalar bool", func(s *Scope) Array { return s.Scalar(0.5, Bool) }, []int{}, Bool, float64s(1)},
		{"scalar of an integer type", func(s *Scope) Array { return s.Scalar(3, Int32) }, []int{}, Int32, float64s(3)},
		{"scalar like", func(s *Scope) Array { return s.ScalarLike(s.Zeros(BFloat16, 3), 2.5) }, []int{}, BFloat16,
			[]float64{2.5}},
		{"integers", func(s *Scope) Array {
			return s.Stack(0, s.AsType(s.ScalarInt(-3, Int8), Int64), s.AsType(s.ScalarInt(300, Int16), Int64),
				s.AsType(s.ScalarInt(-70000, Int32), Int64), s.ScalarInt(1<<40, Int64))
		}, []int{4}, Int64, float64s(-3, 300, -70000, 1<<40)},
		{"scalar integer as float", func(s *Scope) Array { return s.ScalarInt(7, BFloat16) }, []int{}, BFloat16,
			float64s(7)},
		{"from uint32", func(s *Scope) Array { return s.FromUint32s([]uint32{1 << 31, 2}) }, []int{2}, Uint32,
			float64s(1<<31, 2)},
		{"from bools", func(s *Scope) Array { return s.FromBools([]bool{true, false}) }, []int{2}, Bool, float64s(1, 0)},
		{"from bytes", func(s *Scope) Array { return s.FromBytes([]byte{0x80, 0x3f, 0, 0xc0}, BFloat16, 2) },
			[]int{2}, BFloat16, float64s(1, -2)},
		{"from nothing", func(s *Scope) Array { return s.FromFloat32s(nil) }, []int{0}, Float32, nil},
	})
}

func TestShapes(t *testing.T) {
	expect(t, []expectation{
		{"reshape", func(s *Scope) Array { return s.Reshape(sequence(s, 6), 3, -1) }, []int{3, 2}, Float32,
			float64s(0, 1, 2, 3, 4, 5)},
		{"reshape to no dimensions", func(s *Scope) Array { return s.Reshape(s.Ones(Float32, 1)) }, []int{}, Float32,
			float64s(1)},
		{"broadcast_to", func(s *Scope) Array { return s.BroadcastTo(sequence(s, 2, 1), 2, 2) }, []int{2, 2}, Float32,
			float64s(0, 0, 1, 1)},
		{"transpose", func(s *Scope) Array { return s.Transpose(sequence(s, 2, 3)) }, []int{3, 2}, Float32,
			float64s(0, 3, 1, 4, 2, 5)},
		{"transpose axes", func(s *Scope) Array { return s.Transpose(sequence(s, 2, 1, 3), 1, 2, 0) }, []int{1, 3, 2},
			Float32, float64s(0, 3, 1, 4, 2, 5)},
		{"swapaxes", func(s *Scope) Array { return s.SwapAxes(sequence(s, 2, 3), 0, -1) }, []int{3, 2}, Float32,
			float64s(0, 3, 1, 4, 2, 5)},
		{"moveaxis", func(s *Scope) Array { return s.MoveAxis(sequence(s, 1, 2, 3), -1, 0) }, []int{3, 1, 2}, Float32,
			float64s(0, 3, 1, 4, 2, 5)},
		{"expand_dims", func(s *Scope) Array { return s.ExpandDims(sequence(s, 2), 0, -1) }, []int{1, 2, 1}, Float32,
			float64s(0, 1)},
		{"squeeze", func(s *Scope) Array { return s.Squeeze(sequence(s, 1, 2, 1)) }, []int{2}, Float32, float64s(0, 1)},
		{"squeeze an axis", func(s *Scope) Array { return s.Squeeze(sequence(s, 1, 2, 1), -1) }, []int{1, 2}, Float32,
			float64s(0, 1)},
		{"flatten", func(s *Scope) Array { return s.Flatten(sequence(s, 2, 1, 2), 0, 1) }, []int{2, 2}, Float32,
			float64s(0, 1, 2, 3)},
		{"unflatten", func(s *Scope) Array { return s.Unflatten(sequence(s, 4), 0, 2, -1) }, []int{2, 2}, Float32,
			float64s(0, 1, 2, 3)},
		{"repeat", func(s *Scope) Array { return s.Repeat(sequence(s, 2), 2, 0) }, []int{4}, Float32,
			float64s(0, 0, 1, 1)},
		{"contiguous", func(s *Scope) Array { return s.Contiguous(s.Transpose(sequence(s, 2, 2))) }, []int{2, 2}, Float32,
			float64s(0, 2, 1, 3)},
		{"concatenate", func(s *Scope) Array { return s.Concatenate(-1, sequence(s, 2, 1), s.Ones(Float32, 2, 2)) },
			[]int{2, 3}, Float32, float64s(0, 1, 1, 1, 1, 1)},
		{"stack", func(s *Scope) Array { return s.Stack(1, sequence(s, 2), s.Ones(Float32, 2)) }, []int{2, 2}, Float32,
			float64s(0, 1, 1, 1)},
		{"pad", func(s *Scope) Array { // eleven arguments
			return s.Pad(sequence(s, 2, 1), []int{0, 1}, []int{1, 0}, []int{0, 2}, s.Scalar(7, Float32))
		}, []int{3, 3}, Float32, float64s(7, 7, 7, 0, 7, 7, 1, 7, 7)},
	})
}

func TestSplitting(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		first := s.Split(sequence(s, 2, 4), 2, 1)
		second := s.SplitAt(sequence(s, 5), 0, 1, 4)
		if s.Err() != nil || len(first) != 2 || len(second) != 3 {
			t.Fatalf("got %v and %v, %v", first, second, s.Err())
		}
		sameValues(t, values(t, s, first[0]), float64s(0, 1, 4, 5))
		sameValues(t, values(t, s, first[1]), float64s(2, 3, 6, 7))
		for i, want := range [][]float64{{0}, {1, 2, 3}, {4}} {
			sameValues(t, values(t, s, second[i]), want)
		}
	})
}

func TestIndexing(t *testing.T) {
	three := func(s *Scope) Array { return s.FromInt32s([]int32{2, 0, 2}) }
	expect(t, []expectation{
		{"slice", func(s *Scope) Array { return s.Slice(sequence(s, 3, 3), []int{1, 0}, []int{3, 2}) }, []int{2, 2},
			Float32, float64s(3, 4, 6, 7)},
		{"slice from the end", func(s *Scope) Array { return s.Slice(sequence(s, 4), []int{-2}, []int{4}) }, []int{2},
			Float32, float64s(2, 3)},
		{"slice strided", func(s *Scope) Array { return s.SliceStrided(sequence(s, 6), []int{1}, []int{6}, []int{2}) },
			[]int{3}, Float32, float64s(1, 3, 5)},
		{"slice_update", func(s *Scope) Array {
			return s.SliceUpdate(sequence(s, 2, 3), s.Full(Float32, 9, 2, 1), []int{0, 1}, []int{2, 2})
		}, []int{2, 3}, Float32, float64s(0, 9, 2, 3, 9, 5)},
		{"take", func(s *Scope) Array { return s.Take(sequence(s, 2, 3), three(s), 1) }, []int{2, 3}, Float32,
			float64s(2, 0, 2, 5, 3, 5)},
		{"take_along_axis", func(s *Scope) Array {
			return s.TakeAlongAxis(sequence(s, 2, 3), s.FromInt32s([]int32{2, 0}, 2, 1), 1)
		}, []int{2, 1}, Float32, float64s(2, 3)},
		{"put_along_axis", func(s *Scope) Array {
			return s.PutAlongAxis(sequence(s, 2, 2), s.FromInt32s([]int32{1, 0}, 2, 1), s.Full(Float32, 8, 2, 1), 1)
		}, []int{2, 2}, Float32, float64s(0, 8, 8, 3)},
		{"scatter_add", func(s *Scope) Array {
			return s.ScatterAdd(s.Zeros(Float32, 3), three(s), sequence(s, 3), 0)
		}, []int{3}, Float32, float64s(1, 0, 2)},
	})
}

func TestListsOutliveLaterOnes(t *testing.T) {
	s := newScope(t)
	first := s.Split(sequence(s, 4), 2, 0)
	want := slices.Clone(first)
	for range 50 {
		s.Split(sequence(s, 4), 2, 0)
	}
	if !slices.Equal(first, want) {
		t.Error("a later operation overwrote the results of an earlier one")
	}
}
