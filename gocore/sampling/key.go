// Package sampling chooses tokens: samplers and logits processors as MLX
// graphs, with explicit random keys.
package sampling

import "math"

// Key is the state of MLX's random generator: a counter-based one, Threefry
// 2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As
// Easy as 1, 2, 3; SC 2011).
//
// Draws of one row of logits are so few that they are made here, on the host:
// a verification of many rows then needs no chain of small device ops.
type Key [2]uint32

// threefry hashes the counter (a, b) with the key.
func (k Key) threefry(a, b uint32) (uint32, uint32) {
	rotations := [2][4]uint{{13, 15, 26, 6}, {17, 29, 16, 24}}
	schedule := [3]uint32{k[0], k[1], k[0] ^ k[1] ^ 0x1BD11BDA}
	a, b = a+schedule[0], b+schedule[1]
	for round := range 5 {
		for _, r := range rotations[round%2] {
			a += b
			b = b<<r | b>>(32-r)
			b ^= a
		}
		a += schedule[(round+1)%3]
		b += schedule[(round+2)%3] + uint32(round) + 1
	}
	return a, b
}

// Split derives two keys: the generator's next state, and one to draw with.
func (k Key) Split() (next, use Key) {
	next[0], use[0] = k.threefry(0, 2)
	next[1], use[1] = k.threefry(1, 3)
	return next, use
}

// After is the state after n draws.
func (k Key) After(n int) Key {
	for range n {
		k, _ = k.Split()
	}
	return k
}

// Uniform draws one float32 from [0, 1).
func (k Key) Uniform() float32 {
	bits, _ := k.threefry(0, 0)
	u := float32(bits) / float32(math.MaxUint32)
	return min(u, math.Nextafter32(1, 0))
}
