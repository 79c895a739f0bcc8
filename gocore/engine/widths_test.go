package engine

import (
	"testing"

	"axlm/gocore/ngram"
	"axlm/mlxc"
)

func TestFit(t *testing.T) {
	for drafts, want := range map[int]struct{ drafts, width int }{
		0: {0, 1}, 1: {1, 2}, 2: {2, 4}, 3: {3, 4}, 4: {4, 8}, 7: {7, 8}, 8: {7, 8}, 9: {9, 16},
		15: {15, 16}, 16: {15, 16}, 17: {15, 16}, 18: {18, 32}, 31: {31, 32}, 32: {31, 32},
	} {
		d := fit(ngram.Decision{Drafts: make([]int32, drafts), Width: drafts + 1})
		if len(d.Drafts) != want.drafts || d.Width != want.width {
			t.Errorf("%d drafts: %d in %d rows, want %d in %d", drafts, len(d.Drafts), d.Width, want.drafts, want.width)
		}
	}
}

// Warming up times every width, changes no token and leaves nothing behind.
func TestWarmUp(t *testing.T) {
	yes := true
	dir := nano(t, 40)
	e := start(t, Config{WarmUp: &yes, PadViews: &yes})
	text := prompt(40, 30)
	plain := ids(generate(t, load(t, start(t, Config{}), dir), text, Options{MaxTokens: 40}))
	before := mlxc.ActiveMemory()
	m := load(t, e, dir)
	if held := mlxc.ActiveMemory() - before; held > m.Bytes()+64<<10 {
		t.Errorf("a model of %d bytes holds %d", m.Bytes(), held)
	}
	stats, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	timed := map[int]bool{}
	for _, point := range stats.Ngram.Cost.Widths {
		timed[point.Width] = point.Samples > 0
	}
	for _, width := range passWidths {
		if !timed[width] {
			t.Errorf("width %d was not timed: %+v", width, stats.Ngram.Cost.Widths)
		}
	}
	for depth := 1; depth <= 32; depth += 5 {
		o := Options{MaxTokens: 40, Speculation: forced(depth)}
		o.Proposers = []ngram.Proposer{&oracle{truth: append(append([]int32(nil), text...), plain...), depth: depth, right: depth / 2}}
		equal(t, "warmed up", ids(generate(t, m, text, o)), plain)
	}
}
