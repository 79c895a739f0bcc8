package mlxc

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// One goroutine owns the graphs, as MLX before 0.32 demands; functions outside scopes may be called from any other at
// the same time. Each failure must be told to the caller it belongs to.
func TestConcurrentUse(t *testing.T) {
	const workers, rounds = 8, 400
	s := newScope(t)
	shared := s.Keep(s.Ones(Float32, 2, 3))
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	defer shared.Free()
	var group sync.WaitGroup
	failures := make(chan error, workers)
	for id := range workers {
		group.Go(func() { failures <- use(id, rounds, shared, s.Stream()) })
	}
	if err := build(s, rounds); err != nil {
		t.Error(err)
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			t.Error(err)
		}
	}
}

// build makes graphs; every other one fails in a way that names the round.
func build(s *Scope, rounds int) error {
	for i := range rounds {
		s.Reset()
		a := s.Full(Float32, float32(i), 4, 5)
		if i%2 == 1 {
			s.Reshape(a, 1000+i)
			if want := fmt.Sprintf("(%d)", 1000+i); s.Err() == nil || !strings.Contains(s.Err().Error(), want) {
				return fmt.Errorf("round %d: got %v, want an error about %s", i, s.Err(), want)
			}
			continue
		}
		kept := s.Keep(s.Add(a, a))
		s.Close()
		if err := errors.Join(s.Err(), Eval(kept)); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		got, err := kept.Float32s()
		if err != nil || got[19] != float32(2*i) {
			return fmt.Errorf("round %d: got %v, %w", i, got, err)
		}
		kept.Free()
	}
	return nil
}

// use calls what needs no stream from a goroutine that may move between threads.
func use(id, rounds int, shared Array, stream Stream) error {
	missing := fmt.Sprintf("missing-%d.safetensors", id)
	for range rounds {
		if ActiveMemory() <= 0 || Version() == "" {
			return errors.New("the memory or the version is gone")
		}
		if err := Eval(Array{}); err == nil || !strings.Contains(err.Error(), "non-empty mlx_array") {
			return fmt.Errorf("evaluating no array: %v", err)
		}
		if _, _, err := LoadSafetensors(missing, stream); err == nil || strings.Count(err.Error(), missing) != 2 {
			return fmt.Errorf("reading %s: %v", missing, err)
		}
		own := shared.Clone()
		if text := own.String(); text != "[2,3] float32" {
			return fmt.Errorf("a clone is %s", text)
		}
		own.Free()
		runtime.Gosched()
	}
	return nil
}
