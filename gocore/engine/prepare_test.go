package engine

import (
	"slices"
	"testing"
)

// A prompt is indexed before the engine hears of the request, and what a cache
// was given meanwhile is made up for.
func TestPromptsAreIndexedOffTheEnginesThread(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 71))
	c := emptyCache(t, m)
	first, second := prompt(71, 40), prompt(72, 40)
	generate(t, m, first, Options{MaxTokens: 4, Cache: c})
	if _, err := m.Stats(); err != nil { // passes behind the request's end
		t.Fatal(err)
	}
	text := slices.Clone(c.lastKnown())
	if len(text) < len(first) || !slices.Equal(text[:len(first)], first) {
		t.Fatalf("the cache knows %v", text)
	}
	release := make(chan struct{})
	if err := m.engine.post(func() { <-release }); err != nil {
		t.Fatal(err)
	}
	r, err := m.Generate(second, Options{MaxTokens: 20, PrefillStepSize: 64, Cache: c, Speculation: forced(4)})
	if err != nil {
		t.Fatal(err)
	}
	if n := r.spec.Len(); n != len(text)+len(second) { // the engine stands still
		t.Errorf("%d tokens are indexed, want %d", n, len(text)+len(second))
	}
	// The text changes before the request is admitted.
	more := prompt(73, 7)
	close(release)
	got := ids(collect(t, r, -1))
	if n := r.known; n != len(text) {
		t.Errorf("%d tokens before the prompt, want %d", n, len(text))
	}
	r.Close()
	if err := r.show(more); err != nil || r.spec.Len() != len(more)+len(second) {
		t.Errorf("another text: %d tokens, %v", r.spec.Len(), err)
	}
	plain := emptyCache(t, m)
	generate(t, m, first, Options{MaxTokens: 4, Cache: plain})
	equal(t, "after an indexed prompt", got, ids(generate(t, m, second, Options{MaxTokens: 20, Cache: plain})))
}
