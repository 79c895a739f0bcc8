package engine

import (
	"testing"
	"time"
)

func TestAwaitSeesThePrefill(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 31))
	text := prompt(31, 40)
	options := Options{MaxTokens: 6, PrefillStepSize: 8, Logprobs: true}
	want := ids(generate(t, m, text, options))
	r, err := m.Generate(text, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{0, 8, 16, 32, 39} {
		done, err := r.Await(count, time.Minute)
		if err != nil || done < count {
			t.Fatalf("waiting for %d tokens: %d, %v", count, done, err)
		}
	}
	// More than the prompt has: the token ends the wait.
	if done, err := r.Await(1000, time.Minute); done != 40 || err != nil {
		t.Errorf("with the first token there, %d prompt tokens are in the cache, want 40 (%v)", done, err)
	}
	equal(t, "after Await", ids(collect(t, r, -1)), want)
}

func TestAwaitTakesNothing(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 31))
	text := prompt(31, 12)
	options := Options{MaxTokens: 6, PrefillStepSize: 8}
	want := ids(generate(t, m, text, options))
	r, err := m.Generate(text, options)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []int32
	for range 6 {
		for range 3 {
			if _, err := r.Await(1000, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		token, status, err := r.Next(time.Minute)
		if status != Ready || err != nil {
			t.Fatalf("status %v, %v", status, err)
		}
		got = append(got, token.ID)
	}
	equal(t, "with Await before each token", got, want)
	if _, err := r.Await(1000, time.Minute); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestAwaitGivesUp(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 31))
	r, err := m.Generate(prompt(31, 40), Options{MaxTokens: 6, PrefillStepSize: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if done, err := r.Await(40, 0); done < 0 || done > 40 || err != nil {
		t.Errorf("without waiting: %d, %v", done, err)
	}
	m.Close()
	deadline := time.Now().Add(time.Minute)
	for err == nil && time.Now().Before(deadline) {
		_, err = r.Await(1000, time.Second)
		if err == nil {
			_, _, err = r.Next(time.Second) // a token that was ready before
		}
	}
	if err == nil {
		t.Error("a request of a closed model waits without an error")
	}
}
