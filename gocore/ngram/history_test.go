package ngram

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHistoryAgainstSlice grows, wraps and truncates a small history and compares it with a plain slice.
func TestHistoryAgainstSlice(t *testing.T) {
	const window = 2048 // twice the first ring, so that it grows once
	rng := rand.New(rand.NewPCG(1, 2))
	h := NewHistory(window - 5)
	var text []int32
	start := 0
	for round := range 400 {
		if round%7 == 6 {
			n := rng.IntN(len(text) + 2)
			if rng.IntN(20) > 0 {
				n = len(text) - min(len(text), rng.IntN(30))
			}
			h.Truncate(n)
			text = text[:min(n, len(text))]
			start = min(start, len(text))
		} else {
			more := make([]int32, rng.IntN(200))
			for i := range more {
				more[i] = rng.Int32()
			}
			h.Append(more...)
			text = append(text, more...)
			start = max(start, len(text)-window)
		}
		if h.Len() != len(text) || h.Start() != start {
			t.Fatalf("round %d: length %d, start %d, want %d, %d", round, h.Len(), h.Start(), len(text), start)
		}
		for i := start; i < len(text); i++ {
			if h.At(i) != text[i] {
				t.Fatalf("round %d: token %d is %d, want %d", round, i, h.At(i), text[i])
			}
		}
		if h.At(start-1) != -1 || h.At(len(text)) != -1 {
			t.Fatalf("round %d: tokens outside of what is held", round)
		}
		var tail [64]int32
		want := text[max(start, len(text)-64):]
		if got := h.Tail(tail[:]); !slices.Equal(got, want) {
			t.Fatalf("round %d: tail %v, want %v", round, got, want)
		}
	}
	if h.Window() != window {
		t.Errorf("the window is %d, want %d", h.Window(), window)
	}
	h.Truncate(-3)
	if h.Len() != 0 || h.Start() != 0 {
		t.Errorf("after Truncate(-3): length %d, start %d", h.Len(), h.Start())
	}
}
