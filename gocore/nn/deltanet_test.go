package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"axlm/mlxc"
)

// mixCase is random input of what comes before the recurrence.
type mixCase struct {
	DeltaDims
	batch, length               int
	window, conv, a, b, log, dt []float32
}

func newMixCase(batch, length int, d DeltaDims) *mixCase {
	random := rand.New(rand.NewPCG(uint64(length), uint64(d.KeySize)))
	return &mixCase{
		DeltaDims: d, batch: batch, length: length,
		window: noise(random, 1, batch*(d.Width-1+length)*d.channels()), conv: noise(random, 0.5, d.channels()*d.Width),
		a: noise(random, 4, batch*length*d.ValueHeads), b: noise(random, 2, batch*length*d.ValueHeads),
		log: noise(random, 1, d.ValueHeads), dt: noise(random, 1, d.ValueHeads),
	}
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// byDefinition is q, k, v, g and beta in float64.
func (c *mixCase) byDefinition() map[string][]float64 {
	out := map[string][]float64{}
	for b := range c.batch {
		for t := range c.length {
			mixed := make([]float64, c.channels())
			for i := range mixed {
				for j := range c.Width {
					row := b*(c.Width-1+c.length) + t + j
					mixed[i] += float64(c.window[row*c.channels()+i]) * float64(c.conv[i*c.Width+j])
				}
				mixed[i] *= sigmoid(mixed[i])
			}
			for name, head := range map[string]struct {
				from   int
				length float64
			}{"q": {0, 1 / math.Sqrt(float64(c.KeySize))}, "k": {c.keys(), 1}} {
				for h := range c.KeyHeads {
					x := mixed[head.from+h*c.KeySize:][:c.KeySize]
					var squares float64
					for _, v := range x {
						squares += v * v
					}
					for _, v := range x {
						out[name] = append(out[name], head.length*v/math.Sqrt(squares+1e-6))
					}
				}
			}
			out["v"] = append(out["v"], mixed[2*c.keys():]...)
			for h := range c.ValueHeads {
				i := (b*c.length+t)*c.ValueHeads + h
				softplus := math.Log1p(math.Exp(float64(c.a[i]) + float64(c.dt[h])))
				out["g"] = append(out["g"], math.Exp(-math.Exp(float64(c.log[h]))*softplus))
				out["beta"] = append(out["beta"], sigmoid(float64(c.b[i])))
			}
		}
	}
	return out
}

// run is the layer's mix in numbers of type dt.
func (c *mixCase) run(s *mlxc.Scope, parts *DeltaParts, dt mlxc.DType) map[string]mlxc.Array {
	array := func(values []float32, dims ...int) mlxc.Array { return s.AsType(s.FromFloat32s(values, dims...), dt) }
	l := &GatedDeltaNet{
		Conv: array(c.conv, c.channels(), c.Width, 1), DtBias: array(c.dt, c.ValueHeads),
		ALog: s.FromFloat32s(c.log, c.ValueHeads), DeltaParts: parts,
	}
	rows := l.mix(s, array(c.window, c.batch, c.Width-1+c.length, c.channels()),
		array(c.a, c.batch, c.length, c.ValueHeads), array(c.b, c.batch, c.length, c.ValueHeads), c.length)
	return map[string]mlxc.Array{"q": rows.Q, "k": rows.K, "v": rows.V, "g": rows.G, "beta": rows.Beta}
}

// What comes before the recurrence is what it is defined to be: as operations,
// and on a GPU as a kernel.
func TestGatedDeltaMix(t *testing.T) {
	for _, d := range []DeltaDims{
		{KeyHeads: 1, ValueHeads: 1, KeySize: 32, ValueSize: 8, Width: 4}, {KeyHeads: 2, ValueHeads: 6, KeySize: 24, ValueSize: 40, Width: 4},
		{KeyHeads: 2, ValueHeads: 2, KeySize: 128, ValueSize: 3, Width: 2}, {KeyHeads: 1, ValueHeads: 40, KeySize: 32, ValueSize: 2, Width: 3},
	} {
		for _, shape := range [][2]int{{1, 1}, {1, 7}, {2, 3}} {
			t.Run(fmt.Sprint(d, shape), func(t *testing.T) {
				s := newScope(t)
				st := &Store{scope: s}
				t.Cleanup(st.Free)
				kernel := st.DeltaParts(d)
				if st.err != nil {
					t.Fatal(st.err)
				}
				operations := *kernel
				operations.mixer = nil
				c := newMixCase(shape[0], shape[1], d)
				want := c.byDefinition()
				for what, parts := range map[string]*DeltaParts{"operations": &operations, "kernel": kernel} {
					within := 1e-5
					if kernel.mixer != nil && parts.mixer == nil {
						within = 1e-2 // a GPU's convolutions may round their input
					}
					for name, a := range c.run(s, parts, mlxc.Float32) {
						near(t, what+" "+name, values(t, s, a), want[name], within)
					}
					for name, a := range c.run(s, parts, mlxc.BFloat16) {
						near(t, what+" bfloat16 "+name, values(t, s, a), want[name], 0.03)
						if half := a.DType() == mlxc.BFloat16; half == (name == "g") {
							t.Errorf("%s: %s of bfloat16 is %v", what, name, a)
						}
					}
				}
			})
		}
	}
}
