package engine

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"axlm/gocore/errs"
	"axlm/gocore/ngram"
	"axlm/gocore/sampling"
)

// until reads tokens up to the error that ends the request.
func until(t *testing.T, r *Request) ([]int32, error) {
	t.Helper()
	var got []int32
	for {
		token, status, err := r.Next(time.Minute)
		switch {
		case err != nil:
			return got, err
		case status != Ready:
			t.Fatalf("status %v after %d tokens, want an error", status, len(got))
		}
		got = append(got, token.ID)
	}
}

// A request whose tokens cannot be drawn ends with an error of its own; others
// beside it, and those after it, go on.
func TestARowWithoutAFiniteMaximumEndsItsRequest(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 41))
	text := prompt(41, 9)
	base := Options{MaxTokens: 20, PrefillStepSize: 64, Sampler: &sampling.Sampler{Temp: 1}}
	want := ids(seeded(t, m, text, base, 3))
	all := map[string]sampling.Bias{}
	for i := range nanoVocab {
		all[strconv.Itoa(i)] = sampling.Bias(math.Inf(-1))
	}
	for name, bias := range map[string]map[string]sampling.Bias{
		"banned":   all,
		"infinite": {"5": sampling.Bias(math.Inf(1))},
	} {
		for _, speculation := range []*ngram.Config{nil, forced(4)} {
			beside, err := m.Generate(text, base)
			if err != nil {
				t.Fatal(err)
			}
			if err := beside.Reseed(sampling.Key{0, 3}); err != nil {
				t.Fatal(err)
			}
			got := readSome(t, beside, 5)
			o := base
			o.Processors, o.Speculation = &sampling.Processors{LogitBias: bias}, speculation
			r, err := m.Generate(text, o)
			if err != nil {
				t.Fatal(err)
			}
			if drawn, err := until(t, r); !errors.Is(err, errNoToken) || errs.Kind(err) != errs.KindValue || len(drawn) > 0 {
				t.Errorf("%s: tokens %v, then %v", name, drawn, err)
			}
			r.Close()
			equal(t, name, append(got, ids(collect(t, beside, -1))...), want)
			beside.Close()
		}
	}
}

// Tokens that a verifying pass drew before the bad row are the reader's.
func TestTokensBeforeABadRowAreDelivered(t *testing.T) {
	if good, cut := drawable([]int32{3, 4, nanoVocab, 5}, nanoVocab); !cut || !slices.Equal(good, []int32{3, 4}) {
		t.Errorf("%v, %v", good, cut)
	}
	m := load(t, start(t, Config{}), nano(t, 42))
	text := prompt(42, 9)
	// The bonus of a token that was drawn is infinite: no row after it can be
	// drawn from, and the next one is queued already.
	for _, speculation := range []*ngram.Config{nil, forced(5)} {
		o := Options{
			MaxTokens: 60, PrefillStepSize: 64, Sampler: &sampling.Sampler{Temp: 1e-3}, Speculation: speculation,
			Processors: &sampling.Processors{Presence: sampling.Penalty{Value: math.Inf(-1), Context: 1}},
		}
		r, err := m.Generate(text, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := until(t, r); !errors.Is(err, errNoToken) {
			t.Errorf("%v", err)
		}
		r.Close()
	}
	if got := generate(t, m, text, Options{MaxTokens: 3}); len(got) != 3 {
		t.Errorf("%d tokens afterwards", len(got))
	}
}
