package sampling

import (
	"fmt"
	"math"
	"testing"

	"axlm/mlxc"
	"axlm/mlxc/mlxctest"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// Whatever a row holds, what is drawn from it is a token of the vocabulary that
// the row allows, or none: never an index beside it. Rows do not disturb each
// other.
func TestRowsWithoutAFiniteMaximum(t *testing.T) {
	s := mlxctest.NewScope(t)
	good := []float32{-3, -1, -inf, -2, -4, -5}
	rows := [][]float32{
		good,
		{nan, nan, nan, nan, nan, nan},
		{-1, -2, nan, -3, -4, -5},
		{-inf, -inf, -inf, -inf, -inf, -inf},
		{-1, inf, -2, -3, -4, -5},
		{-inf, -inf, -inf, -7, -inf, -inf},
		good,
	}
	drawnFrom := []bool{true, false, false, false, false, true, true}
	vocab := len(good)
	var flat []float32
	for _, row := range rows {
		flat = append(flat, row...)
	}
	samplers := map[string]*Sampler{
		"plain": {Temp: 1}, "hot": {Temp: 1e30}, "cold": {Temp: 1e-30}, "tiny": {Temp: 1e-40}, "negative": {Temp: -1},
		"top_p": {Temp: 1, TopP: 0.9}, "min_p": {Temp: 1, MinP: 0.1, MinTokensToKeep: 2}, "top_k": {Temp: 1, TopK: 3},
		"xtc": {Temp: 1, XTCProbability: 1, XTCThreshold: 0.1},
	}
	for name, sampler := range samplers {
		for _, dtype := range []mlxc.DType{mlxc.Float32, mlxc.BFloat16, mlxc.Float16} {
			for seed := range uint32(8) {
				var draws []Draw
				state := Key{0, seed}
				for range rows {
					var d Draw
					d, state = sampler.Draw(state)
					draws = append(draws, d)
				}
				x := s.AsType(s.FromFloat32s(flat, len(rows), vocab), dtype)
				chosen := sampler.Choose(s, x, draws)
				got, err := chosen.Uint32s()
				if err != nil {
					t.Fatal(err)
				}
				fed, err := Feedable(s, chosen, vocab).Uint32s()
				if err != nil {
					t.Fatal(err)
				}
				for i, id := range got {
					what := fmt.Sprintf("%s, %v, row %d", name, dtype, i)
					switch {
					case int(id) > vocab || int(fed[i]) >= vocab:
						t.Errorf("%s: %d would be fed of %d", what, fed[i], id)
					case name == "negative": // what is banned becomes infinite
					case !drawnFrom[i] && int(id) != vocab:
						t.Errorf("%s: %d was drawn from a row without a finite maximum", what, id)
					case drawnFrom[i] && (int(id) >= vocab || math.IsInf(float64(rows[i][id]), -1)):
						t.Errorf("%s: %d was drawn", what, id)
					}
				}
			}
		}
	}
}

// At a temperature that drives float16 out of its range, the most probable
// token is drawn, and in the others as well.
func TestATinyTemperatureTakesTheBest(t *testing.T) {
	s := mlxctest.NewScope(t)
	row := []float32{-3, -0.5, -9, -2, -100, -5}
	for _, dtype := range []mlxc.DType{mlxc.Float32, mlxc.BFloat16, mlxc.Float16} {
		for _, temp := range []float64{1e-3, 1e-6, 1e-30, 1e-45} {
			sampler := &Sampler{Temp: temp}
			for seed := range uint32(5) {
				draw, _ := sampler.Draw(Key{0, seed})
				got, err := sampler.Choose(s, s.AsType(s.FromFloat32s(row, 1, len(row)), dtype), []Draw{draw}).Uint32s()
				if err != nil || got[0] != 1 {
					t.Errorf("%v, temperature %v: %v, %v; want token 1", dtype, temp, got, err)
				}
			}
		}
	}
}
