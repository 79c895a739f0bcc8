package mlxc

import (
	"math"
	"testing"
)

var (
	left  = []float32{-2.5, -1, -0.25, 0.5, 1, 3.75}
	right = []float32{2, -1, 0.5, 0.5, -3, 1.5}
)

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func TestUnaryOperations(t *testing.T) {
	positive := []float32{0.1, 0.5, 1, 2, 7.25, 30}
	special := []float32{0, 1, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), -0.5}
	var cases []expectation
	for _, c := range []struct {
		name  string
		op    func(*Scope, Array) Array
		in    []float32
		dtype DType
		want  func(float64) float64
	}{
		{"negative", (*Scope).Negative, left, Float32, func(x float64) float64 { return -x }},
		{"abs", (*Scope).Abs, left, Float32, math.Abs},
		{"exp", (*Scope).Exp, left, Float32, math.Exp},
		{"log", (*Scope).Log, positive, Float32, math.Log},
		{"log1p", (*Scope).Log1p, positive, Float32, math.Log1p},
		{"sqrt", (*Scope).Sqrt, positive, Float32, math.Sqrt},
		{"square", (*Scope).Square, left, Float32, func(x float64) float64 { return x * x }},
		{"tanh", (*Scope).Tanh, left, Float32, math.Tanh},
		{"sigmoid", (*Scope).Sigmoid, left, Float32, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }},
		{"floor", (*Scope).Floor, left, Float32, math.Floor},
		{"ceil", (*Scope).Ceil, left, Float32, math.Ceil},
		{"sin", (*Scope).Sin, left, Float32, math.Sin},
		{"isnan", (*Scope).IsNaN, special, Bool, func(x float64) float64 { return truth(math.IsNaN(x)) }},
		{"isinf", (*Scope).IsInf, special, Bool, func(x float64) float64 { return truth(math.IsInf(x, 0)) }},
		{"copy", (*Scope).Copy, left, Float32, func(x float64) float64 { return x }},
	} {
		want := make([]float64, len(c.in))
		for i, x := range c.in {
			want[i] = c.want(float64(x))
		}
		cases = append(cases, expectation{c.name, func(s *Scope) Array { return c.op(s, s.FromFloat32s(c.in)) },
			[]int{len(c.in)}, c.dtype, want})
	}
	expect(t, cases)
}

func TestBinaryOperations(t *testing.T) {
	var cases []expectation
	for _, c := range []struct {
		name  string
		op    func(*Scope, Array, Array) Array
		dtype DType
		want  func(a, b float64) float64
	}{
		{"add", (*Scope).Add, Float32, func(a, b float64) float64 { return a + b }},
		{"subtract", (*Scope).Subtract, Float32, func(a, b float64) float64 { return a - b }},
		{"multiply", (*Scope).Multiply, Float32, func(a, b float64) float64 { return a * b }},
		{"divide", (*Scope).Divide, Float32, func(a, b float64) float64 { return a / b }},
		{"floor_divide", (*Scope).FloorDivide, Float32, func(a, b float64) float64 { return math.Floor(a / b) }},
		{"remainder", (*Scope).Remainder, Float32, func(a, b float64) float64 { return a - b*math.Floor(a/b) }},
		{"maximum", (*Scope).Maximum, Float32, math.Max},
		{"minimum", (*Scope).Minimum, Float32, math.Min},
		{"logaddexp", (*Scope).LogAddExp, Float32, func(a, b float64) float64 { return math.Log(math.Exp(a) + math.Exp(b)) }},
		{"power", func(s *Scope, a, b Array) Array { return s.Power(s.Abs(a), b) }, Float32,
			func(a, b float64) float64 { return math.Pow(math.Abs(a), b) }},
		{"equal", (*Scope).Equal, Bool, func(a, b float64) float64 { return truth(a == b) }},
		{"less", (*Scope).Less, Bool, func(a, b float64) float64 { return truth(a < b) }},
		{"less_equal", (*Scope).LessEqual, Bool, func(a, b float64) float64 { return truth(a <= b) }},
		{"greater", (*Scope).Greater, Bool, func(a, b float64) float64 { return truth(a > b) }},
		{"greater_equal", (*Scope).GreaterEqual, Bool, func(a, b float64) float64 { return truth(a >= b) }},
		{"where", func(s *Scope, a, b Array) Array { return s.Where(s.Less(a, b), a, b) }, Float32, math.Min},
	} {
		want := make([]float64, len(left))
		for i := range left {
			want[i] = c.want(float64(left[i]), float64(right[i]))
		}
		cases = append(cases, expectation{c.name,
			func(s *Scope) Array { return c.op(s, s.FromFloat32s(left), s.FromFloat32s(right)) },
			[]int{len(left)}, c.dtype, want})
	}
	expect(t, cases)
}

func TestLogicalOperations(t *testing.T) {
	logic := func(op func(*Scope, Array, Array) Array) func(s *Scope) Array {
		return func(s *Scope) Array {
			return op(s, s.FromBools([]bool{true, true, false, false}), s.FromBools([]bool{true, false, true, false}))
		}
	}
	expect(t, []expectation{
		{"logical_and", logic((*Scope).LogicalAnd), []int{4}, Bool, float64s(1, 0, 0, 0)},
	})
}

func TestConversions(t *testing.T) {
	expect(t, []expectation{
		{"astype", func(s *Scope) Array { return s.AsType(s.FromFloat32s([]float32{1.75, -2.5}), Int32) },
			[]int{2}, Int32, float64s(1, -2)},
		{"view", func(s *Scope) Array { return s.View(s.FromFloat32s([]float32{1, -2}), Uint32) },
			[]int{2}, Uint32, float64s(0x3f800000, 0xc0000000)},
		{"view as smaller elements", func(s *Scope) Array { return s.View(s.FromUint32s([]uint32{0x01020304}), Uint8) },
			[]int{4}, Uint8, float64s(4, 3, 2, 1)},
		{"clip", func(s *Scope) Array {
			return s.Clip(s.FromFloat32s(left), s.Scalar(-1.5, Float32), s.Scalar(1, Float32))
		}, []int{6}, Float32, []float64{-1.5, -1, -0.25, 0.5, 1, 1}},
		{"clip without a lower limit", func(s *Scope) Array {
			return s.Clip(s.FromFloat32s(left), Array{}, s.Scalar(1, Float32))
		}, []int{6}, Float32, []float64{-2.5, -1, -0.25, 0.5, 1, 1}},
		{"broadcast and promote", func(s *Scope) Array {
			return s.Add(sequence(s, 2, 1), s.FromInt32s([]int32{10, 20}))
		}, []int{2, 2}, Float32, float64s(10, 20, 11, 21)},
	})
}
