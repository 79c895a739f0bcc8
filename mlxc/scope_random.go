package mlxc

import "unsafe"

// Random numbers. Keys are explicit, so results repeat.

// RandomKey makes a key of a seed.
func (s *Scope) RandomKey(seed uint64) Array {
	if !s.begin() {
		return Array{}
	}
	s.frame.a[1] = uintptr(seed)
	return s.finish(&s.lib.c.mlx_random_key)
}

// RandomSplit makes two independent keys of one.
func (s *Scope) RandomSplit(key Array) (a, b Array) {
	if !s.begin() {
		return Array{}, Array{}
	}
	s.out2 = 0
	s.frame.a[1], s.frame.a[2], s.frame.a[3] = uintptr(unsafe.Pointer(&s.out2)), key.ctx, s.stream.ctx
	if a = s.finish(&s.lib.c.mlx_random_split, key); s.err != nil {
		return Array{}, Array{}
	}
	return a, s.Own(Array{s.out2})
}

// RandomSplitN makes n independent keys of one, as the rows of an array.
func (s *Scope) RandomSplitN(key Array, n int) Array {
	if !s.begin() {
		return Array{}
	}
	return s.along(&s.lib.c.mlx_random_split_num, key, n)
}

// RandomBits returns unsigned integers of width bytes (1, 2 or 4).
func (s *Scope) RandomBits(shape []int, width int, key Array) Array {
	address, n := s.intList(0, shape)
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4], f.a[5] = address, n, uintptr(int32(width)), key.ctx, s.stream.ctx
	return s.finish(&s.lib.c.mlx_random_bits, key)
}

// RandomUniform returns numbers from low up to high, which are broadcast to the shape.
func (s *Scope) RandomUniform(low, high Array, shape []int, dt DType, key Array) Array {
	address, n := s.intList(0, shape)
	element := s.element("random_uniform", dt)
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = low.ctx, high.ctx, address, n
	f.a[5], f.a[6], f.a[7] = element, key.ctx, s.stream.ctx
	return s.finish(&s.lib.c.mlx_random_uniform, low, high, key)
}

// RandomNormal returns numbers with mean loc and standard deviation scale.
func (s *Scope) RandomNormal(shape []int, dt DType, loc, scale float32, key Array) Array {
	address, n := s.intList(0, shape)
	element := s.element("random_normal", dt)
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4], f.a[5] = address, n, element, key.ctx, s.stream.ctx
	f.f[0], f.f[1] = floatWord(loc), floatWord(scale)
	return s.finish(&s.lib.c.mlx_random_normal, key)
}

// RandomGumbel returns numbers of the standard Gumbel distribution.
func (s *Scope) RandomGumbel(shape []int, dt DType, key Array) Array {
	address, n := s.intList(0, shape)
	element := s.element("random_gumbel", dt)
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4], f.a[5] = address, n, element, key.ctx, s.stream.ctx
	return s.finish(&s.lib.c.mlx_random_gumbel, key)
}

// RandomCategorical draws indices (uint32) along an axis of unnormalized log-probabilities.
func (s *Scope) RandomCategorical(logits Array, axis int, key Array) Array {
	if !s.begin() {
		return Array{}
	}
	f := &s.frame
	f.a[1], f.a[2], f.a[3], f.a[4] = logits.ctx, uintptr(int32(axis)), key.ctx, s.stream.ctx
	return s.finish(&s.lib.c.mlx_random_categorical, logits, key)
}
