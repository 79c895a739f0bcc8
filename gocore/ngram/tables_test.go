package ngram

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// fed returns a history of the tokens, shown to p as the speculator does.
func fed(p Proposer, tokens ...int32) *History {
	h := NewHistory(1 << 14)
	feed(h, p, tokens...)
	return h
}

func feed(h *History, p Proposer, tokens ...int32) {
	for len(tokens) > 0 {
		n := min(len(tokens), observeChunk)
		from := h.Len()
		h.Append(tokens[:n]...)
		p.Observe(h, from)
		tokens = tokens[n:]
	}
}

// drafted are the tokens that p proposes.
func drafted(p Proposer, h *History, most int) []int32 {
	dst := make([]Draft, most)
	n := p.Draft(h, dst)
	out := []int32{}
	for _, d := range dst[:n] {
		out = append(out, d.Token)
	}
	return out
}

func plainConfig() Config {
	c := DefaultConfig()
	c.Adaptive, c.MaxDraftTokens = false, 4
	return c
}

func TestTrigramBeforeBigram(t *testing.T) {
	p := newTables(plainConfig(), 1<<20)
	// 2 3 is followed by 4 twice, but after 1 it was 9.
	h := fed(p, 7, 2, 3, 4, 8, 2, 3, 4, 1, 2, 3, 9, 5, 5, 1, 2, 3)
	if got := drafted(p, h, 1); !slices.Equal(got, []int32{9}) {
		t.Errorf("after 1 2 3: %v", got)
	}
	feed(h, p, 6, 2, 3) // 6 2 3 was never seen: back to 2 3
	if got := drafted(p, h, 1); !slices.Equal(got, []int32{4}) {
		t.Errorf("after 6 2 3: %v", got)
	}
}

func TestTablesDraftChains(t *testing.T) {
	p := newTables(plainConfig(), 1<<20)
	h := fed(p, 1, 2, 3, 4, 5, 6, 7, 1, 2)
	if got := drafted(p, h, 4); !slices.Equal(got, []int32{3, 4, 5, 6}) {
		t.Errorf("got %v", got)
	}
	if got := drafted(p, h, 32); len(got) != 32 || !slices.Equal(got[:8], []int32{3, 4, 5, 6, 7, 1, 2, 3}) {
		t.Errorf("got %v", got) // the draft goes round the cycle
	}
	if got := drafted(p, h, 0); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestTablesShortHistories(t *testing.T) {
	p := newTables(plainConfig(), 1<<20)
	h := NewHistory(64)
	for i := range int32(3) {
		if got := drafted(p, h, 4); len(got) != 0 {
			t.Errorf("%d tokens: %v", i, got)
		}
		feed(h, p, 1)
	}
	// 1 1 1: the context 1 1 was followed by 1, once.
	if got := drafted(p, h, 1); !slices.Equal(got, []int32{1}) {
		t.Errorf("1 1 1: %v", got)
	}
}

func TestTablesMinSupport(t *testing.T) {
	cfg := plainConfig()
	cfg.MinSupport = 2
	p := newTables(cfg, 1<<20)
	h := fed(p, 1, 2, 3, 9, 1, 2)
	if got := drafted(p, h, 4); len(got) != 0 {
		t.Errorf("seen once: %v", got)
	}
	feed(h, p, 3, 8, 1, 2)
	if got := drafted(p, h, 4); !slices.Equal(got, []int32{3}) { // what follows 3 differed
		t.Errorf("seen twice: %v", got)
	}
}

// TestFeedbackCredits checks that the accepted positions and the first rejected one are credited, and no others.
func TestFeedbackCredits(t *testing.T) {
	p := newTables(plainConfig(), 1<<20)
	h := fed(p, 1, 2, 3, 4, 5, 6, 1, 2)
	if got := drafted(p, h, 4); !slices.Equal(got, []int32{3, 4, 5, 6}) {
		t.Fatalf("got %v", got)
	}
	p.Feedback(4, 1)
	credits := func(order int, key uint64) (c continuation) {
		tb := p.tables[order]
		return tb.entries[tb.find(key)].next[0]
	}
	if c := credits(bigram, bigramKey(1, 2)); c.accepted != 1 || c.rejected != 0 {
		t.Errorf("the accepted one: %+v", c)
	}
	if c := credits(trigram, trigramKey(1, 2, 3)); c.accepted != 0 || c.rejected != 1 {
		t.Errorf("the first rejected one: %+v", c)
	}
	if c := credits(trigram, trigramKey(2, 3, 4)); c.accepted != 0 || c.rejected != 0 {
		t.Errorf("beyond it: %+v", c)
	}
	p.Feedback(4, 4) // there is no draft any more
	if c := credits(bigram, bigramKey(1, 2)); c.accepted != 1 {
		t.Errorf("credited twice: %+v", c)
	}
	drafted(p, h, 4)
	p.Feedback(1, 1) // cut short: the second was not judged
	if c := credits(trigram, trigramKey(1, 2, 3)); c.accepted != 0 || c.rejected != 1 {
		t.Errorf("an unverified one: %+v", c)
	}
}

// TestTruncateEqualsFresh holds for every proposer: cut to n tokens, it proposes what one does that saw only those.
func TestTruncateEqualsFresh(t *testing.T) {
	kinds := map[string]func() Proposer{
		"tables": func() Proposer { return newTables(DefaultConfig(), 1<<16) },
		"suffix": func() Proposer { return newSuffix(DefaultConfig()) },
	}
	for name, make := range kinds {
		rng := rand.New(rand.NewPCG(5, 5))
		p := make()
		h := NewHistory(1 << 14)
		var text []int32
		for round := range 200 {
			more := prose(uint64(round), rng.IntN(300))
			feed(h, p, more...)
			text = append(text, more...)
			n := len(text) - rng.IntN(min(len(text), 20)+1)
			if round%10 == 0 {
				n = rng.IntN(len(text) + 1)
			}
			if n < len(text) {
				p.Truncate(h, n)
				h.Truncate(n)
				text = text[:n]
			}
			if round%4 > 0 {
				continue
			}
			fresh := make()
			g := fed(fresh, text...)
			if got, want := drafted(p, h, 32), drafted(fresh, g, 32); !slices.Equal(got, want) {
				t.Fatalf("%s, round %d, %d tokens: %v, a fresh one says %v", name, round, n, got, want)
			}
		}
	}
}
