package engine

import (
	"testing"
	"time"
)

func TestAPromptIsFilledInParts(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 31))
	text := prompt(31, 40)
	options := Options{MaxTokens: 6, PrefillStepSize: 8, Logprobs: true}
	want := ids(generate(t, m, text, options))
	c := emptyCache(t, m)
	options.Cache = c
	r, err := m.Generate(text, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{0, 8, 16, 16, 32, 39} {
		done, err := r.FillPrompt(count, time.Minute)
		if err != nil || done != count {
			t.Fatalf("filling %d tokens: %d, %v", count, done, err)
		}
		// It rests there: nothing is in the cache that was not asked for.
		if _, err := m.Stats(); err != nil {
			t.Fatal(err)
		}
		if done, _ := r.Progress(); done != count {
			t.Errorf("after filling %d tokens, %d are in the cache", count, done)
		}
	}
	states := taken(t, c)
	if held := states[0].Offset; held != 39 {
		t.Errorf("the cache holds %d tokens, want 39", held)
	}
	again, err := m.NewCache(states)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := r.Resume(again); err != nil {
		t.Fatal(err)
	}
	equal(t, "filled in parts", ids(collect(t, r, -1)), want)
}

func TestFillingGivesWayToNext(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 31))
	text := prompt(31, 40)
	options := Options{MaxTokens: 6, PrefillStepSize: 8}
	want := ids(generate(t, m, text, options))
	r, err := m.Generate(text, options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.FillPrompt(16, 0); err != nil {
		t.Fatal(err)
	}
	if err := Ask(r); err != nil {
		t.Fatal(err)
	}
	if done, err := r.FillPrompt(39, time.Minute); done < 39 || err != nil {
		t.Errorf("with a token asked for: %d, %v", done, err)
	}
	equal(t, "filled, then asked", ids(collect(t, r, -1)), want)
}

func TestAskTakesNothing(t *testing.T) {
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
			if err := Ask(r); err != nil {
				t.Fatal(err)
			}
		}
		token, status, err := r.Next(time.Minute)
		if status != Ready || err != nil {
			t.Fatalf("status %v, %v", status, err)
		}
		got = append(got, token.ID)
	}
	equal(t, "with Ask before each token", got, want)
	if err := Ask(r); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestFillingAClosedModelFails(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 31))
	r, err := m.Generate(prompt(31, 40), Options{MaxTokens: 6, PrefillStepSize: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	m.Close()
	if _, err := r.FillPrompt(39, time.Minute); err == nil {
		t.Error("a closed model's request is filled")
	}
}
