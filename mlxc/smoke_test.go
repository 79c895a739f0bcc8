package mlxc

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

func TestSmoke(t *testing.T) {
	runtime.LockOSThread()
	if err := Load(os.Getenv("AXLM_LIBMLX"), os.Getenv("AXLM_MLXC")); err != nil {
		t.Fatal(err)
	}
	fmt.Println(Version(), current.lib.Load().direct, GPUAvailable())
	st, err := NewStream(Device{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewScope(st)
	a := s.FromFloat32s([]float32{1, 2, 3, 4}, 2, 2)
	b := s.Transpose(a)
	c := s.RMSNorm(s.Matmul(a, b), Array{}, 1e-5)
	parts := s.Split(c, 2, 1)
	x := s.Keep(s.Concatenate(0, parts...))
	bt := s.Keep(b)
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	s.Close()
	if err := Eval(x, bt); err != nil {
		t.Fatal(err)
	}
	fmt.Println(x.Float32s())
	fmt.Println(bt.Float32s())
	s.Add(s.Zeros(Float32, 2, 3), s.Zeros(BFloat16, 4))
	fmt.Println(s.Err())
	di, err := DeviceInfo(Device{})
	fmt.Println(di, err)
	s.Reset()
	fn, err := Compile(func(s *Scope, in []Array) []Array { return []Array{s.Multiply(s.Multiply(in[0], s.Sigmoid(in[0])), in[1])} }, true)
	fmt.Println(fn, err)
	y := s.Call(fn, s.FromFloat32s([]float32{1, 2}), s.FromFloat32s([]float32{1, 2}))
	fmt.Println(s.Err(), Eval(y...))
	fmt.Println(y[0].Float32s())
}
