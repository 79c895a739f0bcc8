package ngram

import "testing"

func candidateOf(chances ...float32) candidate {
	c := candidate{n: len(chances)}
	copy(c.chances[:], chances)
	c.sum()
	return c
}

func same(p float32, n int) candidate {
	chances := make([]float32, n)
	for i := range chances {
		chances[i] = p
	}
	return candidateOf(chances...)
}

func chooserOn(points map[int]float64) *chooser {
	return &chooser{curve: model(points).Curve(), widths: MaxWidth}
}

var steps = map[int]float64{1: 9.8, 2: 10.7, 3: 13.2, 4: 15.3, 5: 18, 6: 20.3, 7: 22.4, 8: 15.1, 16: 16.8, 17: 20.3, 32: 21.3}

func TestExpectedTokens(t *testing.T) {
	c := candidateOf(0.5, 0.5, 1)
	for k, want := range []float64{1, 1.5, 1.75, 2} {
		if c.tokens[k] != want {
			t.Errorf("%d drafts: %v tokens, want %v", k, c.tokens[k], want)
		}
	}
	if c.whole[3] != 0.25 {
		t.Errorf("all accepted with chance %v", c.whole[3])
	}
}

func TestDraftsArePaddedShortenedAndExtended(t *testing.T) {
	for _, tc := range []struct {
		name         string
		cand         candidate
		depth, width int
	}{
		{"four drafts are cheaper at eight rows", same(0.95, 4), 4, 8},
		{"as deep as the width holds", same(0.7, 32), 7, 8},
		{"17 rows are not worth one draft more", same(1, 16), 15, 16},
		{"a sure draft goes to the end", same(1, 32), 31, 32},
		{"a doubtful one stays short", same(0.3, 32), 1, 2},
	} {
		timed, _ := chooserOn(steps).best([]candidate{tc.cand})
		if timed.depth != tc.depth || timed.width != tc.width {
			t.Errorf("%s: %d drafts at %d rows, want %d at %d", tc.name, timed.depth, timed.width, tc.depth, tc.width)
		}
	}
}

func TestBestOfSeveralProposers(t *testing.T) {
	timed, _ := chooserOn(steps).best([]candidate{same(0.3, 8), same(0.9, 15), {}})
	if timed.source != 1 {
		t.Errorf("source %d", timed.source)
	}
}

func TestLinearCostsNeverPay(t *testing.T) {
	h := chooserOn(map[int]float64{1: 100, 2: 200, 4: 400})
	timed, untried := h.best([]candidate{same(0.999, 32)})
	if timed.rate() > 1.0/100 || untried.rate() > 1.0/100 {
		t.Errorf("rates %v and %v, plain decoding has %v", timed.rate(), untried.rate(), 1.0/100)
	}
	if p := h.probe([]candidate{same(0.999, 32)}, 1.0/100); p.depth > 0 {
		t.Errorf("a probe of %d rows", p.width)
	}
}

func TestPartialAcceptancePrice(t *testing.T) {
	h := chooserOn(map[int]float64{1: 10, 2: 10, 4: 10, 8: 10})
	cand := same(0.6, 7)
	free, _ := h.best([]candidate{cand})
	h.extra = 10
	dear, _ := h.best([]candidate{cand})
	if free.depth != 7 {
		t.Errorf("without a price: %d", free.depth)
	}
	if want := 10 + 10*(1-cand.whole[dear.depth]); dear.seconds != want || dear.rate() >= free.rate() {
		t.Errorf("with it: %d drafts in %v, want %v", dear.depth, dear.seconds, want)
	}
}

func TestProbeClimbsByPowersOfTwo(t *testing.T) {
	cands := []candidate{same(0.9, 32)}
	known := map[int]float64{1: 10}
	for _, want := range []int{2, 4, 8, 16, 32} {
		h := chooserOn(known)
		p := h.probe(cands, 1.0/10)
		if p.width != want {
			t.Fatalf("with %d widths known the probe has %d rows, want %d", len(known), p.width, want)
		}
		known[want] = 10.5
	}
}
