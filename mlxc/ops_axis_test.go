package mlxc

import (
	"math"
	"slices"
	"testing"
)

func TestReductions(t *testing.T) {
	grid := []float32{3, 1, 2, -4, 0, 5}
	reduce := func(op func(*Scope, Array, int, bool) Array, axis int, keep bool) func(s *Scope) Array {
		return func(s *Scope) Array { return op(s, s.FromFloat32s(grid, 2, 3), axis, keep) }
	}
	lse := func(v ...float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += math.Exp(x)
		}
		return math.Log(sum)
	}
	expect(t, []expectation{
		{"sum", reduce((*Scope).Sum, 1, false), []int{2}, Float32, float64s(6, 1)},
		{"sum keeping the axis", reduce((*Scope).Sum, 0, true), []int{1, 3}, Float32, float64s(-1, 1, 7)},
		{"max", reduce((*Scope).Max, 1, false), []int{2}, Float32, float64s(3, 5)},
		{"min", reduce((*Scope).Min, 0, false), []int{3}, Float32, float64s(-4, 0, 2)},
		{"argmax", reduce((*Scope).ArgMax, 1, false), []int{2}, Uint32, float64s(0, 2)},
		{"logsumexp", reduce((*Scope).LogSumExp, 1, false), []int{2}, Float32,
			[]float64{lse(3, 1, 2), lse(-4, 0, 5)}},
		{"softmax", func(s *Scope) Array { return s.Softmax(s.FromFloat32s(grid, 2, 3), -1, true) },
			[]int{2, 3}, Float32, []float64{
				math.Exp(3 - lse(3, 1, 2)), math.Exp(1 - lse(3, 1, 2)), math.Exp(2 - lse(3, 1, 2)),
				math.Exp(-4 - lse(-4, 0, 5)), math.Exp(0 - lse(-4, 0, 5)), math.Exp(5 - lse(-4, 0, 5))}},
		{"cumsum", func(s *Scope) Array { return s.CumSum(s.FromFloat32s(grid), 0, false, true) },
			[]int{6}, Float32, float64s(3, 4, 6, 2, 2, 7)},
		{"cumsum from the end, exclusive", func(s *Scope) Array { return s.CumSum(s.FromFloat32s(grid), 0, true, false) },
			[]int{6}, Float32, float64s(4, 3, 1, 5, 5, 0)},
	})
}

func TestSorting(t *testing.T) {
	data := []float32{3, 1, 2, -4, 0, 5}
	expect(t, []expectation{
		{"sort", func(s *Scope) Array { return s.Sort(s.FromFloat32s(data, 2, 3), -1) },
			[]int{2, 3}, Float32, float64s(1, 2, 3, -4, 0, 5)},
		{"argsort", func(s *Scope) Array { return s.Argsort(s.FromFloat32s(data), 0) },
			[]int{6}, Uint32, float64s(3, 4, 1, 2, 0, 5)},
		{"the argpartitioned element", func(s *Scope) Array {
			return s.Slice(s.ArgPartition(s.FromFloat32s(data), 4, 0), []int{4}, []int{5})
		}, []int{1}, Uint32, float64s(0)},
		{"topk, sorted", func(s *Scope) Array { return s.Sort(s.TopK(s.FromFloat32s(data), 2, 0), 0) },
			[]int{2}, Float32, float64s(3, 5)},
	})
}

func TestArgPartitionIsAPermutation(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		data := noise(100, 3)
		order := s.ArgPartition(s.FromFloat32s(data), 30, 0)
		got := values(t, s, order)
		for i, v := range got {
			if (data[int(v)] < data[int(got[30])]) != (i < 30) && i != 30 {
				t.Fatalf("element %d of the order, %v, is on the wrong side", i, v)
			}
		}
		slices.Sort(got)
		for i, v := range got {
			if int(v) != i {
				t.Fatalf("the order is no permutation: %v", got)
			}
		}
	})
}
