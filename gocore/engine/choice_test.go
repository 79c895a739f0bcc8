package engine

import (
	"testing"
	"time"
)

// A reader that takes the largest logit gets the greedy text.
func TestReaderChooses(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 9))
	text := prompt(9, 7)
	plain := ids(generate(t, m, text, Options{MaxTokens: 12}))
	r, err := m.Generate(text, Options{MaxTokens: 12, PrefillStepSize: 3, ReaderChooses: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Choose(1); err == nil {
		t.Error("a choice was accepted before there was anything to choose from")
	}
	var got []int32
	for range plain {
		token, status, err := r.Next(time.Minute)
		if err != nil || status != Ready {
			t.Fatalf("status %v, %v", status, err)
		}
		logits, err := token.Logprobs.Float32s()
		token.Free()
		if err != nil || len(logits) != nanoVocab {
			t.Fatalf("%d logits, %v", len(logits), err)
		}
		best := int32(0)
		for i, v := range logits {
			if v > logits[best] {
				best = int32(i)
			}
		}
		if err := r.Choose(nanoVocab); err == nil {
			t.Error("a token outside the vocabulary was accepted")
		}
		if err := r.Choose(best); err != nil {
			t.Fatal(err)
		}
		got = append(got, best)
	}
	equal(t, "chosen by the reader", got, plain)
}
