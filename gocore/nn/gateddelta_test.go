package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"axlm/gocore/kvcache"
	"axlm/mlxc"
)

// deltaCase is random input of the recurrence.
type deltaCase struct {
	batch, length, keyHeads, valueHeads, keySize, valueSize int
	q, k, v, g, beta, state                                 []float32
}

func newDeltaCase(batch, length, keyHeads, valueHeads, keySize, valueSize int) *deltaCase {
	random := rand.New(rand.NewPCG(uint64(length), uint64(keySize)))
	c := &deltaCase{batch: batch, length: length, keyHeads: keyHeads, valueHeads: valueHeads, keySize: keySize, valueSize: valueSize}
	unit := 1 / math.Sqrt(float64(keySize))
	c.q = noise(random, unit*unit, batch*length*keyHeads*keySize)
	c.k = noise(random, unit, batch*length*keyHeads*keySize)
	c.v = noise(random, 1, batch*length*valueHeads*valueSize)
	c.state = noise(random, 1, batch*valueHeads*valueSize*keySize)
	for range batch * length * valueHeads {
		c.g = append(c.g, 0.5+0.5*random.Float32())
		c.beta = append(c.beta, random.Float32())
	}
	return c
}

// rows is tokens from..to as arrays of type dt.
func (c *deltaCase) rows(s *mlxc.Scope, from, to int, dt mlxc.DType) DeltaRows {
	cut := func(values []float32, dims ...int) mlxc.Array {
		a := s.FromFloat32s(values, append([]int{c.batch, c.length}, dims...)...)
		stop := append([]int{c.batch, to}, dims...)
		start := make([]int, len(stop))
		start[1] = from
		return s.Slice(a, start, stop)
	}
	return DeltaRows{
		Q: s.AsType(cut(c.q, c.keyHeads, c.keySize), dt), K: s.AsType(cut(c.k, c.keyHeads, c.keySize), dt),
		V: s.AsType(cut(c.v, c.valueHeads, c.valueSize), dt), G: cut(c.g, c.valueHeads), Beta: s.AsType(cut(c.beta, c.valueHeads), dt),
	}
}

func (c *deltaCase) initial(s *mlxc.Scope) mlxc.Array {
	return s.FromFloat32s(c.state, c.batch, c.valueHeads, c.valueSize, c.keySize)
}

// byDefinition is the recurrence in float64.
func (c *deltaCase) byDefinition() (y, state []float64) {
	state = make([]float64, len(c.state))
	for i, v := range c.state {
		state[i] = float64(v)
	}
	y = make([]float64, len(c.v))
	for b := range c.batch {
		for t := range c.length {
			for h := range c.valueHeads {
				token := b*c.length + t
				gate := token*c.valueHeads + h
				keys := (token*c.keyHeads + h/(c.valueHeads/c.keyHeads)) * c.keySize
				for d := range c.valueSize {
					row := state[((b*c.valueHeads+h)*c.valueSize+d)*c.keySize:][:c.keySize]
					var recalled float64
					for i := range row {
						row[i] *= float64(c.g[gate])
						recalled += row[i] * float64(c.k[keys+i])
					}
					delta := (float64(c.v[gate*c.valueSize+d]) - recalled) * float64(c.beta[gate])
					for i := range row {
						row[i] += float64(c.k[keys+i]) * delta
						y[gate*c.valueSize+d] += row[i] * float64(c.q[keys+i])
					}
				}
			}
		}
	}
	return y, state
}

func newRule(t *testing.T, s *mlxc.Scope, keySize int) *DeltaRule {
	t.Helper()
	st := &Store{scope: s}
	t.Cleanup(st.Free)
	rule := st.DeltaRule(keySize)
	if st.err != nil {
		t.Fatal(st.err)
	}
	return rule
}

var deltaCases = [][6]int{ // batch, length, key heads, value heads, key size, value size
	{1, 1, 1, 1, 32, 4}, {1, 9, 2, 4, 32, 8}, {2, 5, 2, 2, 64, 10}, {1, 4, 1, 3, 24, 7}, {2, 3, 1, 2, 128, 17},
}

func eachDeltaCase(t *testing.T, test func(t *testing.T, s *mlxc.Scope, c *deltaCase, rule *DeltaRule)) {
	for _, d := range deltaCases {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			s := newScope(t)
			test(t, s, newDeltaCase(d[0], d[1], d[2], d[3], d[4], d[5]), newRule(t, s, d[4]))
		})
	}
}

// The recurrence is what it is defined to be; on a GPU that is the kernel.
func TestDeltaRule(t *testing.T) {
	eachDeltaCase(t, func(t *testing.T, s *mlxc.Scope, c *deltaCase, rule *DeltaRule) {
		y, state := rule.Forward(s, c.rows(s, 0, c.length, mlxc.Float32), c.initial(s))
		wantY, wantState := c.byDefinition()
		near(t, "y", values(t, s, y), wantY, 1e-5)
		near(t, "state", values(t, s, state), wantState, 1e-5)

		y, state = rule.Forward(s, c.rows(s, 0, c.length, mlxc.BFloat16), c.initial(s))
		if y.DType() != mlxc.BFloat16 || state.DType() != mlxc.Float32 {
			t.Errorf("bfloat16 rows give %v and %v", y, state)
		}
		near(t, "y of bfloat16", values(t, s, y), wantY, 0.03)
	})
}

func near(t *testing.T, what string, got []float32, want []float64, within float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	var size float64
	for _, w := range want {
		size = math.Max(size, math.Abs(w))
	}
	for i := range got {
		if !(math.Abs(float64(got[i])-want[i]) <= within*size) {
			t.Fatalf("%s[%d] is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// However tokens are divided among forwards, the bits are the same, and those
// of a replay too: rolling back depends on it.
func TestDeltaRuleIsTheSameInParts(t *testing.T) {
	eachDeltaCase(t, func(t *testing.T, s *mlxc.Scope, c *deltaCase, rule *DeltaRule) {
		for _, dt := range []mlxc.DType{mlxc.Float32, mlxc.BFloat16} {
			y, state := rule.Forward(s, c.rows(s, 0, c.length, dt), mlxc.Array{})
			wantY, wantState := values(t, s, y), values(t, s, state)
			for first := 1; first < c.length; first++ {
				a, middle := rule.Forward(s, c.rows(s, 0, first, dt), mlxc.Array{})
				b, end := rule.Forward(s, c.rows(s, first, c.length, dt), middle)
				if !slices.Equal(values(t, s, s.Concatenate(1, a, b)), wantY) || !slices.Equal(values(t, s, end), wantState) {
					t.Errorf("%v: %d tokens and then the rest differ from all at once", dt, first)
				}
				all := c.rows(s, 0, first, dt)
				replayed := rule.Replay(s, mlxc.Array{}, kvcache.RecurrentRows{K: all.K, V: all.V, G: all.G, Beta: all.Beta})
				if !slices.Equal(values(t, s, replayed), values(t, s, middle)) {
					t.Errorf("%v: replaying %d tokens differs from running them", dt, first)
				}
			}
		}
	})
}
