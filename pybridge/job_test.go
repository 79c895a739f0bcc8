package pybridge

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"axlm/mlxc"
	"axlm/mlxc/mlxctest"
)

func TestMain(m *testing.M) { mlxctest.Main(m) }

func started(t *testing.T) {
	t.Helper()
	if _, err := Init(os.Getenv("AXLM_LIBMLX"), os.Getenv("AXLM_MLXC")); err != nil {
		t.Fatal(err)
	}
}

func taken(t *testing.T, job int, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for {
		done, err := JobWait(job, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if done == 1 {
			break
		}
	}
	text, err := JobTake(job, nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestArraysCrossAsCopies(t *testing.T) {
	started(t)
	data := make([]byte, 24)
	for i := range 6 {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(i)/2))
	}
	for form, shape := range map[string]string{
		`{"dtype":"float32","shape":[2,3]}`:  "[2 3]",
		`{"dtype":"float32","shape":[1,6]}`:  "[1 6]",
		`{"dtype":"bfloat16","shape":[3,4]}`: "[3 4]",
	} {
		job, err := ArrayCopy(data, form)
		handle, err := strconv.Atoi(taken(t, job, err))
		if err != nil {
			t.Fatal(err)
		}
		a, err := get(bridge.arrays, "array", handle)
		if err != nil {
			t.Fatal(err)
		}
		if got := shapeText(a); got != shape {
			t.Errorf("%s: shape %s", form, got)
		}
		if a.DType() == mlxc.Float32 {
			values, err := a.Float32s()
			if err != nil || values[5] != 2.5 {
				t.Errorf("%s: %v, %v", form, values, err)
			}
		}
		if _, err := ArrayFree(handle); err != nil {
			t.Error(err)
		}
	}
	for _, form := range []string{`{"dtype":"float32","shape":[5]}`, `{"dtype":"nothing","shape":[6]}`, `{`} {
		job, err := ArrayCopy(data, form)
		if err != nil {
			continue
		}
		for done := 0; done == 0; {
			done, _ = JobWait(job, 1000)
		}
		if _, err := JobTake(job, nil); err == nil {
			t.Errorf("%s was taken", form)
		}
	}
}

func shapeText(a mlxc.Array) string {
	words := make([]string, a.NDim())
	for i := range words {
		words[i] = strconv.Itoa(a.Dim(i))
	}
	return "[" + strings.Join(words, " ") + "]"
}

// A job's result is taken once, its error and its panic arrive, and one that is
// dropped undoes what it made.
func TestJobs(t *testing.T) {
	if text := taken(t, begin(func(context.Context) (outcome, error) { return outcome{text: "done"}, nil }), nil); text != "done" {
		t.Errorf("%q", text)
	}
	for word, f := range map[string]func(context.Context) (outcome, error){
		"broken": func(context.Context) (outcome, error) { return outcome{}, errors.New("broken") },
		"boom":   func(context.Context) (outcome, error) { panic("boom") },
	} {
		job := begin(f)
		for done := 0; done == 0; {
			done, _ = JobWait(job, 1000)
		}
		if _, err := JobTake(job, nil); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
		if _, err := JobTake(job, nil); err == nil {
			t.Errorf("%s was taken twice", word)
		}
	}
	undone := make(chan bool)
	waiting := make(chan bool)
	job := begin(func(ctx context.Context) (outcome, error) {
		close(waiting)
		<-ctx.Done() // a dropped job hears of it
		return outcome{drop: func() { close(undone) }}, nil
	})
	<-waiting
	if done, err := JobWait(job, 1); done != 0 || err != nil {
		t.Errorf("%d, %v", done, err)
	}
	if _, err := JobTake(job, nil); err == nil {
		t.Error("a job was taken before it was done")
	}
	for range 2 {
		if _, err := JobDrop(job); err != nil {
			t.Error(err)
		}
	}
	<-undone
	if _, err := JobWait(job, 0); err == nil {
		t.Error("a dropped job is waited for")
	}
}

// Whatever handle comes, no call ends the process.
func TestStrangeHandles(t *testing.T) {
	started(t)
	const none = 1 << 40
	calls := map[string]func() error{
		"Stats":        func() error { _, err := Stats(none); return err },
		"RequestStats": func() error { _, err := RequestStats(none); return err },
		"Choose":       func() error { _, err := Choose(none, 1); return err },
		"CacheTake":    func() error { _, err := CacheTake(none); return err },
		"CacheNew":     func() error { _, err := CacheNew(none, "[]"); return err },
		"Resume":       func() error { _, err := Resume(none, none); return err },
		"Forward":      func() error { _, err := Forward(none, []byte{1, 0, 0, 0}, 1, "{}"); return err },
		"Parameters":   func() error { _, err := Parameters(none, "[]"); return err },
		"Adapt":        func() error { _, err := Adapt(none, "x"); return err },
		"CastWeights":  func() error { _, err := CastWeights(none, "float16", "[]"); return err },
		"Next":         func() error { _, err := Next(none, 0); return err },
		"ArrayOut":     func() error { _, err := ArrayOut(none, 0); return err },
	}
	for name, f := range calls {
		if err := f(); err == nil {
			t.Errorf("%s takes a handle of nothing", name)
		}
	}
	if job, err := ModelFree(none); job != 0 || err != nil {
		t.Errorf("freeing nothing: %d, %v", job, err)
	}
}
