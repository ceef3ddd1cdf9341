/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include "channel_pass.h"
#include "gate.h"
#include "gray_stem.h"
#include "loss_scale.h"
#include "number.h"

namespace {

/* Takes layers off the table one by one; the first surprise ends the walk. */
struct walk {
	const net_plan *plan;
	const engine_layout *layout;
	network *net;
	int next;
	bool good;

	const net_layer *take(layer_op op)
	{
		good = good && next < plan->n_layers && plan->layers[next].op == op;
		return good ? &plan->layers[next++] : nullptr;
	}
	size_t offset(int param) const
	{
		return layout->groups[plan->n_params - 1 - param].offset;
	}
	void bn(bn_place *place, layer_op op = OP_BN_RELU)
	{
		const net_layer *l = take(op);
		if (!good)
			return;
		const net_bn *b = &plan->bns[l->bn];
		*place = { offset(b->weight), offset(b->bias), b->offset, b->channels };
	}
	void conv(conv_place *place)
	{
		const net_layer *l = take(OP_CONV);
		if (!good)
			return;
		const int padded = l->c_in % 8 ? STEM_CHANNELS : l->c_in;
		*place = { l->weight, offset(l->weight), net->copy_count, l->h_in, l->h_out, l->c_in, padded, l->c_out, l->k, l->stride, l->pad, 0 };
		net->copy_count += (size_t)l->c_out * (size_t)(l->k * l->k) * (size_t)padded;
		good = l->c_out % 8 == 0 && padded >= l->c_in;
		next -= !good;
	}
};

void walk_block(walk *w, dense_block *b, int side, int channels, int layers)
{
	b->side = side;
	b->c_in = b->channels = channels;
	b->layers = layers;
	for (int i = 0; i < layers && w->good; i++) {
		dense_layer *l = &b->layer[i];
		l->c_in = b->channels;
		w->bn(&l->bn1);
		w->conv(&l->conv1);
		w->bn(&l->bn2);
		w->conv(&l->conv2);
		w->take(OP_CONCAT);
		b->channels += w->net->growth;
	}
}

/* The stem as gray_stem.h computes it; its copy is the first. */
void fold_stem(network *net)
{
	conv_place *s = &net->stem;
	net->gray = true;
	s->h_in = s->h_out + GRAY_BORDER;
	s->c_in = s->c_padded = GRAY_CHANNELS;
	s->kernel = GRAY_TAPS;
	s->stride = 1;
	s->pad = 0;
	net->copy_count = (size_t)s->c_out * GRAY_TAPS * GRAY_TAPS * GRAY_CHANNELS;
}

/* The DenseNet's blocks and its last normalisation; the channels that arrive at the head. */
int walk_blocks(walk *w, int side, int channels)
{
	network *net = w->net;
	net->blocks = w->plan->n_blocks;
	for (int i = 0; i < net->blocks && w->good; i++) {
		dense_block *b = &net->block[i];
		if (i) {
			w->bn(&b->transition_bn);
			w->conv(&b->transition);
			w->take(OP_AVGPOOL);
			if (side % 2)
				return 0;
			side /= 2;
			channels = b->transition.c_out;
			b->transition.h_in = b->transition.h_out = side; /* the pool comes first here: both commute */
		}
		walk_block(w, b, side, channels, w->plan->block[i]);
		channels = b->channels;
		w->good = w->good && channels <= PASS_MAX_CHANNELS;
	}
	w->bn(&net->head_bn);
	net->last_side = side;
	return channels;
}

int walk_residuals(walk *w, int side, int channels)
{
	network *net = w->net;
	for (int i = 0; i < w->plan->n_blocks; i++)
		net->residuals += w->plan->block[i];
	w->good = w->good && net->residuals <= MAX_LAYERS;
	for (int i = 0; i < net->residuals && w->good; i++) {
		residual_block *b = &net->residual[i];
		b->h_in = side;
		b->c_in = channels;
		for (int k = 0; k < 3; k++) {
			w->conv(&b->conv[k]);
			w->bn(&b->bn[k], k < 2 ? OP_BN_RELU : OP_BN);
		}
		b->projected = w->good && w->next < w->plan->n_layers && w->plan->layers[w->next].op == OP_CONV;
		if (b->projected) {
			w->conv(&b->shortcut);
			w->bn(&b->shortcut_bn, OP_BN);
		}
		const net_layer *join = w->take(OP_ADD_RELU);
		b->h_out = side = join ? join->h_out : 0;
		b->c_out = channels = join ? join->c_out : 0;
	}
	net->last_side = side;
	w->good = w->good && channels <= PASS_MAX_CHANNELS;
	return channels;
}

} // namespace

int network_make(network *net, const engine_conf *conf, error *e)
{
	const net_plan *plan = conf->plan;
	*net = {};
	net->family = plan->family;
	net->growth = plan->growth;
	net->bottleneck = plan->bottleneck * plan->growth;
	net->classes = plan->classes;
	walk w = { plan, conf->layout, net, 0, true };
	w.conv(&net->stem);
	if (conf->channels == 1 && w.good && net->stem.kernel == STEM_TAPS && net->stem.stride == 2 && net->stem.pad == STEM_TAPS / 2)
		fold_stem(net);
	w.bn(&net->stem_bn);
	const net_layer *pool = w.take(OP_MAXPOOL);
	net->stem_side = net->stem.h_out;
	net->first_side = pool ? pool->h_out : 0;
	net->features = (plan->family == NET_RESNET ? walk_residuals : walk_blocks)(&w, net->first_side, net->stem.c_out);
	if (w.good && !net->features)
		return fail(e, EXIT_USAGE, "the CUDA engine needs maps of even size before a transition of %s: choose an image size that is a multiple of %d", plan->model, 4 << (net->blocks - 1));
	if (net->residuals > MAX_LAYERS)
		return fail(e, EXIT_USAGE, "the CUDA engine computes ResNets of at most %d blocks, and this %s has %d: use fewer, or --engine cpu", MAX_LAYERS, plan->model, net->residuals);
	w.take(OP_GLOBAL_AVGPOOL);
	const net_layer *classifier = w.take(OP_LINEAR);
	if (!w.good)
		return fail(e, EXIT_USAGE, "the CUDA engine computes DenseNets and ResNets whose channels are multiples of 8 and at most 2048; layer %d of %s (%s) is something else", w.next, plan->model,
		            w.next < plan->n_layers ? plan->layers[w.next].name : "the end");
	net->classifier_param = classifier->weight;
	net->classifier_weight = w.offset(classifier->weight);
	net->classifier_bias = w.offset(classifier->bias);
	return 0;
}

batch_words batch_words_of(int batch)
{
	const size_t n = (size_t)batch;
	batch_words at;
	at.window = 256; /* behind the step */
	at.weight = at.window + n * sizeof(image_window);
	at.labels = at.weight + n * sizeof(float);
	at.known = at.labels + n * sizeof(uint32_t);
	at.bytes = at.known + n * sizeof(uint32_t);
	return at;
}

size_t update_blocks(const net_plan *plan)
{
	size_t blocks = 0;
	for (int i = 0; i < plan->n_params; i++)
		blocks += (plan->params[i].count + UPDATE_BLOCK - 1) / UPDATE_BLOCK;
	return blocks;
}

namespace {

void grow(size_t *most, size_t count)
{
	*most = count > *most ? count : *most;
}

size_t image_count(const network *net, const engine_conf *conf)
{
	return (size_t)conf->batch * (size_t)net->stem.h_in * (size_t)net->stem.h_in * STEM_CHANNELS;
}

size_t stem_count(const network *net, const engine_conf *conf)
{
	return (size_t)conf->batch * (size_t)net->stem_side * (size_t)net->stem_side * (size_t)net->stem.c_out;
}

} // namespace

/* One stream runs kernels in order, so gradients share rooms: a convolution's input gradient takes the place of its activation, a
 * block's bottlenecks that of the other parity's gradient. The first block is even: at the stem gradient[1] is free. */
template <class T> size_t memory<T>::lay_out_blocks(arena *m, const network *net, const engine_conf *conf)
{
	const size_t n = (size_t)conf->batch;
	size_t widest = (size_t)net->bottleneck, inputs = stem_count(net, conf), room[2] = { 0, image_count(net, conf) };
	for (int i = 0; i < net->blocks; i++) {
		const dense_block *b = &net->block[i];
		const size_t map_pixels = n * (size_t)b->side * (size_t)b->side, channels = (size_t)b->channels, middle = map_pixels * (size_t)net->bottleneck;
		m->take(map[i], map_pixels * channels);
		for (int l = 0; l < b->layers; l++)
			m->take(bottleneck[i][l], middle);
		m->take(block_mean[i], channels);
		m->take(block_rstd[i], channels);
		m->take(block_square[i], channels);
		grow(&widest, channels);
		grow(&inputs, map_pixels * channels);
		grow(&inputs, middle);
		if (i) /* three maps of backward_transition() */
			grow(&inputs, map_pixels * (2 * (size_t)net->block[i - 1].channels + (size_t)b->c_in));
		grow(&room[i % 2], map_pixels * channels);
		grow(&room[(i + 1) % 2], middle);
	}
	m->take(gradient[0], room[0]);
	m->take(gradient[1], room[1]);
	m->take(activation, inputs);
	back = stem_gradient = activation;
	images = gradient[1];
	return widest;
}

/* The same for residual blocks, but the gradient of the first block's input ends in gradient[1]. */
template <class T> size_t memory<T>::lay_out_residuals(arena *m, const network *net, const engine_conf *conf)
{
	size_t map = image_count(net, conf), behind = stem_count(net, conf), middle = 0, widest = 0;
	const size_t n = (size_t)conf->batch;
	m->take(residual_in, n * (size_t)net->first_side * (size_t)net->first_side * (size_t)net->stem.c_out);
	for (int i = 0; i < net->residuals; i++) {
		const residual_block &b = net->residual[i];
		const size_t in = n * (size_t)b.h_in * (size_t)b.h_in, out = n * (size_t)b.h_out * (size_t)b.h_out, width = (size_t)b.conv[0].c_out, c_out = (size_t)b.c_out;
		m->take(residual_y[i][0], in * width);
		m->take(residual_y[i][1], out * width);
		m->take(residual_y[i][2], out * c_out);
		if (b.projected)
			m->take(residual_shortcut[i], out * c_out);
		m->take(residual_out[i], out * c_out);
		grow(&map, out * c_out);
		grow(&map, in * (size_t)b.c_in);
		grow(&middle, in * width);
		grow(&widest, c_out);
	}
	grow(&behind, map);
	m->take(gradient[0], map);
	m->take(gradient[1], map);
	m->take(activation, middle);
	m->take(back, behind);
	stem_gradient = back;
	images = gradient[0];
	return widest;
}

template <class T> void memory<T>::lay_out(arena *m, const network *net, const engine_conf *conf, size_t partial_floats, size_t workspace_bytes, float *outside)
{
	const net_plan *plan = conf->plan;
	const size_t n = (size_t)conf->batch, slab_count = conf->layout->slab_count, bns = plan->n_bn_channels;
	const size_t source = (size_t)conf->source_size * (size_t)conf->source_size;
	m->part = ARENA_OPTIMISER;
	m->take(moment1, slab_count);
	m->take(moment2, slab_count);
	m->part = ARENA_PARAMETERS;
	m->take(weights, slab_count);
	slab = outside;
	if (!outside)
		m->take(slab, slab_count);
	m->take(copy, net->copy_count);
	m->take(running_mean, bns);
	m->take(running_variance, bns);
	m->take(unbias, bns);
	m->part = ARENA_MAPS;
	for (uint8_t *&slot : pixels)
		m->take(slot, n * source * (size_t)conf->channels);
	const batch_words at = batch_words_of(conf->batch);
	m->take(words, at.bytes);
	auto inside = [&](size_t offset) { return (void *)(words ? words + offset : nullptr); };
	step = (update_step *)inside(0);
	window = (image_window *)inside(at.window);
	image_weight = (float *)inside(at.weight);
	labels = (uint32_t *)inside(at.labels);
	known = (uint32_t *)inside(at.known);
	m->take(pos_weight, (size_t)plan->classes);
	m->take(stem, stem_count(net, conf));
	m->take(stem_place, n * (size_t)net->first_side * (size_t)net->first_side * (size_t)net->stem.c_out);
	const size_t widest = net->family == NET_RESNET ? lay_out_residuals(m, net, conf) : lay_out_blocks(m, net, conf);
	m->take(scale, bns);
	m->take(bias, bns);
	m->take(mean, bns);
	m->take(rstd, bns);
	m->take(square, bns);
	m->take(s1, widest);
	m->take(s2, widest);
	m->take(a, widest);
	m->take(b, widest);
	m->take(c, widest);
	m->take(sums, (size_t)SUM_BLOCKS * 2 * (widest > 128 ? widest : 128));
	for (float *&of : tile_sums)
		m->take(of, (size_t)SUM_BLOCKS * 2 * 128);
	m->take(partial, partial_floats);
	m->take(pooled, n * (size_t)net->features);
	m->take(logits, n * (size_t)net->classes);
	m->take(dlogits, n * (size_t)net->classes);
	m->take(dpooled, n * (size_t)net->features);
	m->take(groups, (size_t)plan->n_params);
	m->take(block_group, update_blocks(plan));
	m->take(block_first, update_blocks(plan));
	m->take(gate, 1);
	loss_scale = nullptr;
	if (conf->precision == PRECISION_FP16)
		m->take(loss_scale, 1);
	m->part = ARENA_WORKSPACE;
	char *bytes;
	m->take(bytes, workspace_bytes);
	workspace = bytes;
}

template struct memory<float>;
template struct memory<bf16>;
template struct memory<fp16>;
