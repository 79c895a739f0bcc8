package ngram

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestEntryBytes(t *testing.T) {
	h := NewHistory(1 << 12)
	h.Append(cycle(5, 100)...)
	p := newTables(DefaultConfig(), 1<<20)
	p.Observe(h, 0)
	if got, want := p.tables[0].bytes(), len(p.tables[0].entries)*64; got != want {
		t.Errorf("bytes %d, want %d", got, want)
	}
}

func TestBestCountsRecencyAndFeedback(t *testing.T) {
	tb := newTable(256)
	see := func(pos int, tokens ...int32) {
		for i, tok := range tokens {
			tb.observe(42, tok, pos+i)
		}
	}
	best := func(support int) int32 {
		c, _ := tb.entries[tb.find(42)].best(support, 1000)
		if c == nil {
			return -1
		}
		return c.token
	}
	see(1, 7, 7, 8)
	if got := best(1); got != 7 {
		t.Errorf("seen twice against once: %d", got)
	}
	see(4, 8)
	if got := best(1); got != 8 {
		t.Errorf("of equal counts the latest: %d", got)
	}
	see(5, 9)
	if got := best(3); got != -1 {
		t.Errorf("none was seen three times: %d", got)
	}
	if got := best(2); got != 8 && got != 7 {
		t.Errorf("seen twice: %d", got)
	}
	at := tb.find(42)
	for range 3 {
		tb.credit(at, 42, 7, true)
		tb.credit(at, 42, 8, false)
	}
	if got := best(1); got != 7 {
		t.Errorf("accepted thrice: %d", got)
	}
	_, before := tb.entries[at].best(1, 1000)
	tb.credit(at, 42, 7, false)
	if _, after := tb.entries[at].best(1, 1000); after >= before {
		t.Errorf("a rejection raised the estimate from %v to %v", before, after)
	}
	tb.credit(at, 43, 7, false) // not what stands there: nothing happens
}

func TestWeakestContinuationGivesWay(t *testing.T) {
	tb := newTable(256)
	for i, tok := range []int32{1, 1, 2, 2, 3, 4, 4, 5} { // four places, five tokens: 3 goes
		tb.observe(9, tok, i+1)
	}
	var tokens []int32
	for _, c := range tb.entries[tb.find(9)].next {
		tokens = append(tokens, c.token)
	}
	slices.Sort(tokens)
	if !slices.Equal(tokens, []int32{1, 2, 4, 5}) {
		t.Errorf("continuations %v", tokens)
	}
}

func TestCountsSaturate(t *testing.T) {
	tb := newTable(256)
	for i := range 200_000 {
		tb.observe(9, 5, i)
	}
	for i := range 3 {
		tb.observe(9, 6, 200_000+i)
	}
	if c, p := tb.entries[tb.find(9)].best(1, 200_010); c.token != 5 || p < 0.9 || p > 1 {
		t.Errorf("token %d at %v", c.token, p)
	}
	at := tb.find(9)
	for range 1000 {
		tb.credit(at, 9, 5, true)
	}
	if _, p := tb.entries[at].best(1, 200_010); p < 0.9 || p > 1 {
		t.Errorf("after many credits %v", p)
	}
}

// TestTableStaysWithinItsSize fills a table far beyond its size: what was seen last must still be found.
func TestTableStaysWithinItsSize(t *testing.T) {
	tb := newTable(1024)
	const n = 50_000
	for i := range n {
		tb.observe(max(mix(uint64(i)), 1), int32(i), i)
	}
	if len(tb.entries) != 1024 || tb.filled > 1024 {
		t.Fatalf("%d entries, %d filled", len(tb.entries), tb.filled)
	}
	found := 0
	for i := n - 100; i < n; i++ {
		if at := tb.find(max(mix(uint64(i)), 1)); at >= 0 && tb.entries[at].next[0].token == int32(i) {
			found++
		}
	}
	if found < 95 {
		t.Errorf("%d of the last 100 contexts are still there", found)
	}
}

func TestUndoRestores(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	tb := newTable(64)
	pos := 0
	step := func() {
		pos++
		tb.observe(max(mix(uint64(rng.IntN(200))), 1), int32(rng.IntN(9)), pos)
	}
	for range 1000 {
		step()
	}
	for range 200 {
		before, filled := slices.Clone(tb.entries), tb.filled
		n := rng.IntN(journalled + 1)
		for range n {
			step()
		}
		if !tb.undo(n) {
			t.Fatalf("%d sightings are not journalled", n)
		}
		if !slices.Equal(before, tb.entries) || filled != tb.filled {
			t.Fatalf("undoing %d sightings does not restore the table", n)
		}
		if tb.undo(journalled + 1) {
			t.Fatal("undid more than is journalled")
		}
		for range journalled {
			step()
		}
	}
	for range 10 {
		step()
	}
	if !tb.undo(journalled) || tb.undo(1) {
		t.Error("what was overwritten in the journal must not be undone")
	}
}
