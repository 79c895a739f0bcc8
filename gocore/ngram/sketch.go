package ngram

import (
	"math"
	"math/bits"
)

// sketch estimates how many different keys it was shown, by linear counting: each sets a bit, and the bits left clear
// tell how many there were, to about a hundredth. It costs a fraction of growing a table step by step, which would put
// every context in its place several times.
type sketch struct {
	words []uint64
	shift int
	shown int
}

// newSketch makes one for n keys; beyond most different ones it only tells that there are so many.
func newSketch(n, most int) *sketch {
	size := 64
	for size < 4*min(n, most) {
		size *= 2
	}
	return &sketch{words: make([]uint64, size/64), shift: 64 - bits.TrailingZeros(uint(size))}
}

// add shows a key, which is mixed well already.
func (k *sketch) add(key uint64) {
	bit := key >> k.shift
	k.words[bit/64] |= 1 << (bit % 64)
	k.shown++
}

func (k *sketch) distinct() int {
	clear := 0
	for _, w := range k.words {
		clear += 64 - bits.OnesCount64(w)
	}
	size := float64(64 * len(k.words))
	if clear == 0 {
		return k.shown
	}
	return min(int(size*math.Log(size/float64(clear))), k.shown)
}
