"""Groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""
