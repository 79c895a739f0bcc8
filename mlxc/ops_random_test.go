package mlxc

import (
	"math"
	"math/bits"
	"slices"
	"testing"
)

// threefry is the generator behind MLX's keys: Threefry-2x32 with 20 rounds (Salmon et al., 2011).
func threefry(k0, k1, c0, c1 uint32) (uint32, uint32) {
	keys := [3]uint32{k0, k1, 0x1bd11bda ^ k0 ^ k1}
	rotations := [2][4]int{{13, 15, 26, 6}, {17, 29, 16, 24}}
	c0, c1 = c0+keys[0], c1+keys[1]
	for round := range 5 {
		for _, r := range rotations[round%2] {
			c0 += c1
			c1 = bits.RotateLeft32(c1, r) ^ c0
		}
		c0 += keys[(round+1)%3]
		c1 += keys[(round+2)%3] + uint32(round) + 1
	}
	return c0, c1
}

// randomWords is an even number of the words that MLX draws from a key.
func randomWords(k0, k1 uint32, n int) []float64 {
	out := make([]float64, n)
	for i := range n / 2 {
		a, b := threefry(k0, k1, uint32(i), uint32(n/2+i))
		out[i], out[n/2+i] = float64(a), float64(b)
	}
	return out
}

func TestRandomWords(t *testing.T) {
	const seed = 7<<32 | 42
	split := randomWords(7, 42, 4)
	expect(t, []expectation{
		{"key", func(s *Scope) Array { return s.RandomKey(seed) }, []int{2}, Uint32, float64s(7, 42)},
		{"bits", func(s *Scope) Array { return s.RandomBits([]int{2, 3}, 4, s.RandomKey(seed)) }, []int{2, 3}, Uint32,
			randomWords(7, 42, 6)},
		{"split, first", func(s *Scope) Array { a, _ := s.RandomSplit(s.RandomKey(seed)); return a }, []int{2}, Uint32,
			split[:2]},
		{"split, second", func(s *Scope) Array { _, b := s.RandomSplit(s.RandomKey(seed)); return b }, []int{2}, Uint32,
			split[2:]},
		{"split_num", func(s *Scope) Array { return s.RandomSplitN(s.RandomKey(seed), 3) }, []int{3, 2}, Uint32,
			randomWords(7, 42, 6)},
	})
}

func TestRandomDistributions(t *testing.T) {
	const n = 4000
	bothPaths(t, func(t *testing.T, s *Scope) {
		key := s.RandomKey(1)
		shape := []int{n}
		for _, c := range []struct {
			name           string
			numbers        Array
			mean, variance float64
		}{
			{"uniform", s.RandomUniform(s.Scalar(-1, Float32), s.Scalar(3, Float32), shape, Float32, key), 1, 16.0 / 12},
			{"normal", s.RandomNormal(shape, Float32, 2, 0.5, key), 2, 0.25},
			{"gumbel", s.RandomGumbel(shape, Float32, key), 0.5772, math.Pi * math.Pi / 6},
			{"bfloat16 normal", s.RandomNormal(shape, BFloat16, 0, 1, key), 0, 1},
		} {
			got := values(t, s, c.numbers)
			mean, variance := moments(got)
			if math.Abs(mean-c.mean) > 0.08 || math.Abs(variance-c.variance) > 0.1*c.variance+0.02 {
				t.Errorf("%s: mean %.3f and variance %.3f, want %.3f and %.3f", c.name, mean, variance, c.mean, c.variance)
			}
			if again := values(t, s, c.numbers); !slices.Equal(got, again) {
				t.Errorf("%s: not repeatable", c.name)
			}
		}
	})
}

func moments(v []float64) (mean, variance float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		variance += (x - mean) * (x - mean) / float64(len(v))
	}
	return mean, variance
}

func TestRandomCategorical(t *testing.T) {
	bothPaths(t, func(t *testing.T, s *Scope) {
		const n = 3000
		p := []float64{0.1, 0, 0.6, 0.3}
		logits := make([]float32, len(p))
		for i, v := range p {
			logits[i] = float32(math.Log(v))
		}
		rows := s.BroadcastTo(s.FromFloat32s(logits), n, len(p))
		counts := make([]float64, len(p))
		for _, v := range values(t, s, s.RandomCategorical(rows, -1, s.RandomKey(5))) {
			counts[int(v)] += 1.0 / n
		}
		for i := range p {
			if math.Abs(counts[i]-p[i]) > 0.03 || p[i] == 0 && counts[i] != 0 {
				t.Errorf("drew %v, want about %v", counts, p)
			}
		}
	})
}
