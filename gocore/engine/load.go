package engine

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"axlm/gocore/errs"
	"axlm/gocore/models"
	"axlm/gocore/ngram"
	"axlm/gocore/nn"
	"axlm/gocore/weights"
	"axlm/mlxc"
)

// loadBatch is how many bytes of weights are read between two looks at other
// work, so that a load does not hold up requests of other models.
const loadBatch = 64 << 20

// LoadOptions say how a folder is loaded.
type LoadOptions struct {
	// Lazy leaves the weights on disk until they are used first.
	Lazy bool
	// Config replaces top-level keys of config.json.
	Config map[string]any
	// Adapter is the folder of an adapter to apply, "" for none.
	Adapter string
}

// Load is a model folder on its way into memory.
type Load struct {
	done, total atomic.Int64
	finished    chan struct{}
	cancelled   atomic.Bool
	warming     atomic.Bool
	model       *Model
	err         error
}

// Progress tells how many bytes of the weights were read, of how many.
func (l *Load) Progress() (done, total int64) { return l.done.Load(), l.total.Load() }

// Cancel gives the load up. It ends after the weights that it is reading, with
// an error.
func (l *Load) Cancel() { l.cancelled.Store(true) }

var errCancelled = errs.Value("the load was cancelled")

// WarmingUp tells that the weights are read and the passes are being run once.
func (l *Load) WarmingUp() bool { return l.warming.Load() }

// Wait waits up to d and tells whether the load ended; then the model is
// ready, or the error says why not.
func (l *Load) Wait(d time.Duration) (*Model, bool, error) {
	select {
	case <-l.finished:
		return l.model, true, l.err
	case <-time.After(d):
		return nil, false, nil
	}
}

// Load begins to load the model folder at dir.
func (e *Engine) Load(dir string, o LoadOptions) *Load {
	l := &Load{finished: make(chan struct{})}
	go func() {
		defer close(l.finished)
		l.err = guarded(func() (err error) {
			l.model, err = e.load(dir, o, l)
			return err
		})
	}()
	return l
}

func (e *Engine) load(dir string, o LoadOptions, l *Load) (*Model, error) {
	folder, err := weights.OpenWith(dir, o.Config)
	if err != nil {
		return nil, err
	}
	if err := models.Check(folder); err != nil {
		return nil, err
	}
	var adapter *weights.Adapter
	if o.Adapter != "" {
		if adapter, err = weights.OpenAdapter(o.Adapter); err != nil {
			return nil, err
		}
	}
	// A manifest beside the weights must be true; one of an earlier state of the
	// folder is as good as none.
	manifest, _, err := weights.Current(folder)
	if err != nil {
		return nil, err
	}
	shared, err := ngram.NewShared(ngram.DefaultConfig())
	if err != nil {
		return nil, err
	}
	m := &Model{Folder: folder, engine: e, live: map[uint64]*Request{}, shared: shared, manifest: manifest}
	if adapter != nil {
		m.adapter.Store(&o.Adapter)
	}
	if err := e.do(func() error { return m.assemble(adapter) }); err != nil {
		return nil, fmt.Errorf("loading a %s model: %w", folder.ModelType, err)
	}
	arrays := m.store.Arrays()
	m.bytes.Store(bytesOf(arrays))
	m.parameters.Store(int64(m.store.Parameters()))
	l.total.Store(m.bytes.Load())
	_ = e.post(e.allot) // a closed engine needs none
	if o.Lazy {
		return m, nil
	}
	for len(arrays) > 0 {
		if l.cancelled.Load() {
			_ = m.Close() // nobody waits for it
			return nil, errCancelled
		}
		n := batchOf(arrays)
		size := bytesOf(arrays[:n])
		if err := e.do(func() error { return mlxc.Eval(arrays[:n]...) }); err != nil {
			_ = m.Close() // the first error is the one to tell
			return nil, fmt.Errorf("reading weights: %w", err)
		}
		arrays = arrays[n:]
		l.done.Add(size)
	}
	if e.warm {
		l.warming.Store(true)
		step := func(f func() error) error {
			if l.cancelled.Load() {
				return errCancelled
			}
			return e.do(f)
		}
		if err := e.warmUp(m.model, step, m.shared.Cost().Record); err != nil {
			_ = m.Close() // the first error is the one to tell
			return nil, err
		}
	}
	return m, nil
}

// CheckTensors tells whether the folder's tensors are those that its family
// asks for, by role, shape and dtype. It reads no weights.
func (e *Engine) CheckTensors(folder *weights.Folder, manifest *weights.Manifest) error {
	if err := models.Check(folder); err != nil {
		return err
	}
	m := &Model{Folder: folder, engine: e, manifest: manifest}
	return e.do(func() error {
		err := m.assemble(nil)
		if err == nil {
			m.store.Free()
			e.planner.forget(m)
		}
		return err
	})
}

// assemble makes the model's layers on arrays that MLX will read when they are
// evaluated. It runs on the engine's thread.
func (m *Model) assemble(adapter *weights.Adapter) error {
	arrays, err := m.engine.open(m.Folder)
	if err != nil {
		return err
	}
	s := m.engine.scope
	s.Reset()
	defer s.Close()
	st := nn.NewStore(m.Folder, m.manifest, arrays, s)
	if adapter != nil {
		err = m.engine.adapt(st, adapter)
	}
	var built models.Model
	if err == nil {
		built, err = models.Build(m.Folder, st)
	}
	if err == nil {
		err = st.Finish()
	}
	if err != nil {
		st.Free()
		return err
	}
	m.model, m.store = built, st
	if r, ok := built.(interface{ Recurrent() bool }); ok {
		m.recurrent = r.Recurrent()
	}
	m.drafted = st.FixedLength()
	m.vocab, m.layers = built.VocabSize(), built.Layers()
	m.caches = len(built.NewCache(models.CacheOptions{}).Layers)
	if err := m.engine.measure(m); err != nil {
		st.Free()
		m.model, m.store = nil, nil
		return err
	}
	return nil
}

// adapt opens the adapter's file for the layers that are built after it.
func (e *Engine) adapt(st *nn.Store, a *weights.Adapter) error {
	arrays, _, err := mlxc.LoadSafetensors(a.Path(), e.reader)
	if err != nil {
		return fmt.Errorf("opening %s: %w", a.Path(), err)
	}
	return st.Adapt(a, arrays)
}

// open maps the folder's tensor names to arrays that are not read yet.
func (e *Engine) open(f *weights.Folder) (map[string]mlxc.Array, error) {
	all := map[string]mlxc.Array{}
	for _, file := range f.Files {
		arrays, _, err := mlxc.LoadSafetensors(filepath.Join(f.Dir, file), e.reader)
		if err != nil {
			freeAll(all)
			return nil, fmt.Errorf("opening %s: %w", file, err)
		}
		for name, a := range arrays {
			all[name].Free()
			all[name] = a
		}
	}
	return all, nil
}
