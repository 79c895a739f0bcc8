package engine

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"axlm/mlxc"
)

// A long forward is given up between two parts of it.
func TestALongForwardIsGivenUp(t *testing.T) {
	e := start(t, Config{})
	m := load(t, e, nano(t, 51))
	givenUp := errors.New("given up")
	for allowed := range 3 {
		asked := 0
		err := e.do(func() error {
			state, err := m.stateOf(nil)
			if err != nil {
				return err
			}
			defer state.Free()
			e.pace = pace{}
			if err := e.build(func(s *mlxc.Scope) { m.forward(s, prompt(1, 100), mlxc.Array{}, state, 0) }); err != nil {
				return err
			}
			return e.evaluate(state, 100, func() error {
				if asked++; asked > allowed {
					return givenUp
				}
				return nil
			})
		})
		// It has two layers.
		if allowed < 2 && (!errors.Is(err, givenUp) || asked != allowed+1) || allowed == 2 && (err != nil || asked != 2) {
			t.Errorf("%d parts allowed: asked %d times, %v", allowed, asked, err)
		}
	}
}

// What is computed in parts is what is computed at once.
func TestPartsGiveTheSameTokens(t *testing.T) {
	for kind, m := range caching(t) {
		text := prompt(52, 200)
		var want []int32
		for _, part := range []int{maxPart, 1} {
			// Between requests the engine's thread rests.
			m.engine.pace = pace{aPart.Seconds() / float64(part*150), 1 << 20}
			got := ids(generate(t, m, text, Options{MaxTokens: 8, PrefillStepSize: 150}))
			if want == nil {
				want = got
			}
			equal(t, kind, got, want)
		}
	}
}

func TestLogitsAreGivenUp(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 53))
	var stop atomic.Bool
	stop.Store(true)
	if _, err := m.Logits(prompt(1, 100), 1, mlxc.Array{}, nil, &stop); err == nil || !strings.Contains(err.Error(), "given up") {
		t.Errorf("%v", err)
	}
	c := emptyCache(t, m)
	out, err := m.Logits(prompt(1, 100), 1, mlxc.Array{}, c, &stop) // a cache is waited for
	if err != nil {
		t.Fatal(err)
	}
	out.Free()
	if c.Offset() != 100 {
		t.Errorf("the cache counts %d tokens, want 100", c.Offset())
	}
}

// While one model gets other weights and is warmed up, another's requests go
// on.
func TestARebuildLetsOthersRun(t *testing.T) {
	warm := true
	e := start(t, Config{WarmUp: &warm})
	m, other := load(t, e, nano(t, 54)), load(t, e, nano(t, 55))
	r, err := other.Generate(prompt(1, 5), Options{MaxTokens: Unlimited, PrefillStepSize: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	readSome(t, r, 1)
	done := make(chan error, 1)
	go func() { done <- m.SetDType(context.Background(), mlxc.BFloat16, []mlxc.DType{mlxc.Float32}) }()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if n < 5 {
				t.Errorf("%d tokens while another model was rebuilt", n)
			}
			return
		default:
			readSome(t, r, 1)
		}
	}
}

// A rebuild that is given up, whenever that is, leaves the model as it is.
func TestARebuildThatIsGivenUp(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 56))
	want := ids(generate(t, m, prompt(1, 9), Options{MaxTokens: 8}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.SetDType(ctx, mlxc.Float16, []mlxc.DType{mlxc.Float32}); err == nil {
		t.Error("a rebuild that was given up succeeds")
	}
	equal(t, "afterwards", ids(generate(t, m, prompt(1, 9), Options{MaxTokens: 8})), want)
	if err := m.SetDType(t.Context(), mlxc.Float16, []mlxc.DType{mlxc.Float32}); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// A request that is admitted to a model which closed meanwhile frees its
// embeddings.
func TestEmbeddingsOfARefusedRequestAreFreed(t *testing.T) {
	m := load(t, start(t, Config{}), nano(t, 57))
	var embeddings mlxc.Array
	const rows = 4096
	err := m.engine.do(func() error {
		err := m.engine.build(func(s *mlxc.Scope) { embeddings = s.Keep(s.Full(mlxc.Float32, 0.5, rows, m.hidden())) })
		if err != nil {
			return err
		}
		return mlxc.Eval(embeddings)
	})
	if err != nil {
		t.Fatal(err)
	}
	before := mlxc.ActiveMemory()
	release := make(chan struct{})
	if err := m.engine.post(func() { <-release }); err != nil {
		t.Fatal(err)
	}
	if err := m.engine.post(func() { m.model = nil }); err != nil {
		t.Fatal(err)
	}
	r, err := m.Generate(nil, Options{MaxTokens: 3, PrefillStepSize: 8, Embeddings: embeddings})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	close(release)
	if _, _, err := r.Next(time.Minute); !errors.Is(err, errModelClosed) {
		t.Errorf("%v", err)
	}
	if err := m.engine.do(mlxc.ClearCache); err != nil {
		t.Fatal(err)
	}
	if freed := before - mlxc.ActiveMemory(); freed < rows*m.hidden()*4 {
		t.Errorf("%d bytes were freed, want the embeddings' %d", freed, rows*m.hidden()*4)
	}
}

// Quick forwards do not make a long one that follows deaf.
func TestThePaceOfLongForwards(t *testing.T) {
	for _, c := range []struct {
		known pace
		rows  int
		want  int
	}{
		{pace{}, 100, 1},
		{pace{1e-6, 100}, 200, maxPart},
		{pace{1e-6, 100}, 201, 1},
		{pace{1e-4, 1000}, 200, 5},
		{pace{1e-3, 1000}, 2000, 1},
	} {
		if got := c.known.layers(c.rows); got != c.want {
			t.Errorf("%v: %d layers of %d tokens at once, want %d", c.known, got, c.rows, c.want)
		}
	}
}
