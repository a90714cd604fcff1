/* Textures and surfaces, which the interpreter refuses. */
extern "C" __global__ void textures(cudaTextureObject_t texture, cudaSurfaceObject_t surface, float *out)
{
    int t = threadIdx.x;
    out[t] = tex2D<float>(texture, t + 0.5f, 0.5f);
    surf2Dwrite(out[t], surface, t * 4, 0);
}
