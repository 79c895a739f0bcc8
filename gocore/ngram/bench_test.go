package ngram

import (
	"math/rand/v2"
	"testing"
)

// prose is text of words that come back: a Zipf vocabulary, a third of it copied from earlier stretches.
func prose(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 1))
	zipf := rand.NewZipf(rng, 1.2, 4, 50000)
	text := make([]int32, 0, n+256)
	for len(text) < n {
		if len(text) > 300 && rng.IntN(60) == 0 {
			from := rng.IntN(len(text) - 200)
			text = append(text, text[from:from+20+rng.IntN(100)]...)
			continue
		}
		text = append(text, int32(zipf.Uint64()))
	}
	return text[:n]
}

func cycle(period, n int) []int32 {
	text := make([]int32, n)
	for i := range text {
		text[i] = int32(i % period)
	}
	return text
}

var benchTexts = []struct {
	name string
	text []int32
}{
	{"prose", prose(1, 32768)},
	{"cycle", cycle(7, 32768)},
	{"same", make([]int32, 32768)},
}

func BenchmarkObserve(b *testing.B) {
	for _, bt := range benchTexts {
		b.Run(bt.name, func(b *testing.B) {
			s := mustNew(b, DefaultConfig(), nil)
			s.Observe(bt.text...)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				s.Observe(bt.text[i%len(bt.text)])
			}
		})
	}
}

// BenchmarkDraft is one proposer's draft of 16 tokens from a history of 32k.
func BenchmarkDraft(b *testing.B) {
	for _, bt := range benchTexts {
		store := newStore(32 << 20)
		h := NewHistory(1 << 18)
		h.Append(bt.text...)
		store.add(h)
		cfg := DefaultConfig()
		for _, p := range []Proposer{newSuffix(cfg), newTables(cfg, 8<<20), newSharedProposer(cfg, store)} {
			b.Run(p.Name()+"/"+bt.name, func(b *testing.B) {
				h := NewHistory(1 << 18)
				for at := 0; at < len(bt.text); at += observeChunk {
					h.Append(bt.text[at:min(at+observeChunk, len(bt.text))]...)
					p.Observe(h, at)
				}
				var dst [16]Draft
				n := 0
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					n += p.Draft(h, dst[:])
				}
				b.ReportMetric(float64(n)/float64(b.N), "tokens")
			})
		}
	}
}

// BenchmarkPlan is a whole step with all proposers: plan, observe, result.
func BenchmarkPlan(b *testing.B) {
	for _, bt := range benchTexts {
		b.Run(bt.name, func(b *testing.B) {
			cfg := DefaultConfig()
			shared := mustShared(b, cfg)
			first := mustNew(b, cfg, shared)
			first.Observe(bt.text...)
			first.Finish()
			s := mustNew(b, cfg, shared)
			s.Observe(bt.text...)
			at := 0
			next := func() int32 { at++; return bt.text[at%len(bt.text)] }
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				d := s.Plan(16)
				s.Observe(next())
				s.Result(d, 0, 0.01)
			}
		})
	}
}

// BenchmarkPrompt is the indexing of a prompt of 32k tokens, from nothing.
func BenchmarkPrompt(b *testing.B) {
	for _, bt := range append(benchTexts, struct {
		name string
		text []int32
	}{"random", noise(1, 32768)}) {
		b.Run(bt.name, func(b *testing.B) {
			b.ReportAllocs()
			held := 0
			for range b.N {
				s := mustNew(b, DefaultConfig(), nil)
				s.Observe(bt.text...)
				held = s.Stats().Bytes
			}
			b.ReportMetric(float64(held), "held")
		})
	}
}
