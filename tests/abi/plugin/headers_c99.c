/* SPDX-License-Identifier: Apache-2.0
 * The plugin headers as strict C99, and their golden layout on LP64 (plugin-api/ABI.md). A line
 * that does not compile here is a broken ABI: change the header, not this file.
 */
#include <stddef.h>

#include "plugin-api/nccl/collnet.h"
#include "plugin-api/plexus_collnet.h"
#include "plugin-api/plexus_net.h"
#include "plugin-api/plexus_plugin.h"
#include "plugin-api/plexus_tuner.h"

#define GOLDEN(name, is_so) typedef char golden_##name[(is_so) ? 1 : -1]
#define SIZE(type, bytes) GOLDEN(size_of_##type, sizeof(type) == (bytes))
#define OFFSET(type, field, bytes) GOLDEN(type##_##field, offsetof(type, field) == (bytes))

SIZE(plexus_plugin_t, 56);
OFFSET(plexus_plugin_t, struct_size, 4);
OFFSET(plexus_plugin_t, abi_major, 8);
OFFSET(plexus_plugin_t, abi_minor, 12);
OFFSET(plexus_plugin_t, kind, 16);
OFFSET(plexus_plugin_t, name, 24);
OFFSET(plexus_plugin_t, version, 32);
OFFSET(plexus_plugin_t, net, 40);
OFFSET(plexus_plugin_t, tuner, 48);

SIZE(plexus_tuner_link_t, 24);
SIZE(plexus_tuner_cuda_t, 24);
SIZE(plexus_tuner_comm_t, 160);
OFFSET(plexus_tuner_comm_t, comm_id, 24);
OFFSET(plexus_tuner_comm_t, links, 40);
OFFSET(plexus_tuner_comm_t, cuda, 136);
SIZE(plexus_tuner_call_t, 48);
OFFSET(plexus_tuner_call_t, size_bytes, 16);
OFFSET(plexus_tuner_call_t, trials, 32);
SIZE(plexus_tuner_trial_t, 40);
OFFSET(plexus_tuner_trial_t, time_ns, 32);
SIZE(plexus_tuner_candidate_t, 104);
OFFSET(plexus_tuner_candidate_t, trial_calls, 80);
OFFSET(plexus_tuner_candidate_t, net_rounds, 88);
OFFSET(plexus_tuner_candidate_t, net_chunks_in_all, 96);
OFFSET(plexus_tuner_candidate_t, chunks_per_loop, 24);
OFFSET(plexus_tuner_candidate_t, time_ns, 40);
OFFSET(plexus_tuner_candidate_t, chunk_bytes, 52);
OFFSET(plexus_tuner_candidate_t, chunks_in_all, 56);
OFFSET(plexus_tuner_candidate_t, chunks_reduced, 64);
SIZE(plexus_tuner_ops_t, 40);

SIZE(plexus_net_config_t, 40);
OFFSET(plexus_net_config_t, traffic_class, 4);
OFFSET(plexus_net_config_t, comm_id, 8);
OFFSET(plexus_net_config_t, log, 16);
OFFSET(plexus_net_config_t, log_sink, 24);
OFFSET(plexus_net_config_t, setting, 32);

SIZE(plexus_net_properties_t, 512);
OFFSET(plexus_net_properties_t, pci_path, 64);
OFFSET(plexus_net_properties_t, guid, 320);
OFFSET(plexus_net_properties_t, fabric_id, 328);
OFFSET(plexus_net_properties_t, message_bytes_max, 336);
OFFSET(plexus_net_properties_t, pointer_support, 344);
OFFSET(plexus_net_properties_t, speed_mbit_per_s, 348);
OFFSET(plexus_net_properties_t, latency_ns, 352);
OFFSET(plexus_net_properties_t, port, 356);
OFFSET(plexus_net_properties_t, comms_max, 360);
OFFSET(plexus_net_properties_t, recvs_max, 364);
OFFSET(plexus_net_properties_t, requests_max, 368);
OFFSET(plexus_net_properties_t, registration_is_global, 372);
OFFSET(plexus_net_properties_t, force_flush, 376);
OFFSET(plexus_net_properties_t, rail_id, 380);
OFFSET(plexus_net_properties_t, plane_id, 384);
OFFSET(plexus_net_properties_t, takes_pieces, 388);
OFFSET(plexus_net_properties_t, reserved, 392);

SIZE(plexus_net_path_t, 64);
OFFSET(plexus_net_path_t, loss_per_billion, 4);
OFFSET(plexus_net_path_t, bandwidth_mbit_per_s, 8);
OFFSET(plexus_net_path_t, latency_ns, 16);
OFFSET(plexus_net_path_t, cost, 24);

SIZE(plexus_net_handle_t, 128);

SIZE(plexus_net_region_t, 32);
OFFSET(plexus_net_region_t, size_bytes, 8);
OFFSET(plexus_net_region_t, dmabuf_offset_bytes, 16);
OFFSET(plexus_net_region_t, dmabuf_fd, 24);
OFFSET(plexus_net_region_t, kind, 28);

SIZE(plexus_net_buffer_t, 32);
OFFSET(plexus_net_buffer_t, size_bytes, 8);
OFFSET(plexus_net_buffer_t, memory, 16);
OFFSET(plexus_net_buffer_t, tag, 24);
OFFSET(plexus_net_buffer_t, flags, 28);

SIZE(plexus_net_ops_t, 176);
OFFSET(plexus_net_ops_t, init, 8);
OFFSET(plexus_net_ops_t, finalize, 16);
OFFSET(plexus_net_ops_t, device_count, 24);
OFFSET(plexus_net_ops_t, properties, 32);
OFFSET(plexus_net_ops_t, listen, 40);
OFFSET(plexus_net_ops_t, connect, 48);
OFFSET(plexus_net_ops_t, accept, 56);
OFFSET(plexus_net_ops_t, register_send, 64);
OFFSET(plexus_net_ops_t, register_recv, 72);
OFFSET(plexus_net_ops_t, deregister, 80);
OFFSET(plexus_net_ops_t, isend, 88);
OFFSET(plexus_net_ops_t, irecv, 96);
OFFSET(plexus_net_ops_t, flush, 104);
OFFSET(plexus_net_ops_t, test, 112);
OFFSET(plexus_net_ops_t, close_send, 120);
OFFSET(plexus_net_ops_t, close_recv, 128);
OFFSET(plexus_net_ops_t, close_listen, 136);
OFFSET(plexus_net_ops_t, net_path, 144);
OFFSET(plexus_net_ops_t, isend_pieces, 152);
OFFSET(plexus_net_ops_t, irecv_pieces, 160);
OFFSET(plexus_net_ops_t, isend_gathered, 168);
SIZE(plexus_net_piece_t, 16);
SIZE(plexus_net_source_t, 24);
OFFSET(plexus_net_source_t, size_bytes, 8);
OFFSET(plexus_net_source_t, memory, 16);

SIZE(plexus_collnet_config_t, 40);
OFFSET(plexus_collnet_config_t, setting, 32);
SIZE(plexus_collnet_properties_t, 128);
SIZE(plexus_collnet_reduction_t, 48);
SIZE(plexus_collnet_plugin_t, 40);
SIZE(plexus_collnet_ops_t, 112);
OFFSET(plexus_collnet_properties_t, message_bytes_max, 64);
OFFSET(plexus_collnet_properties_t, requests_max, 76);
OFFSET(plexus_collnet_reduction_t, type, 40);
OFFSET(plexus_collnet_ops_t, connect, 56);
OFFSET(plexus_collnet_ops_t, iallreduce, 80);
OFFSET(plexus_collnet_ops_t, close_listen, 104);

GOLDEN(magic, PLEXUS_PLUGIN_MAGIC == 0x50584c50u);
GOLDEN(codes,
       PLEXUS_OK == 0 && PLEXUS_REMOTE_ERROR == 6 && PLEXUS_AGAIN == 7 && PLEXUS_TIMEOUT == 8);
