"""For each alert of pipelines: series that make it fire, and series that come near and must not."""

from tests.deploy.alert_cases import Case

TARGET = 'job="penstock-tables",instance="host:9464"'
PIPELINE = f'{TARGET},pipeline="orders"'


def series(name: str, more: str = "", labels: str = PIPELINE) -> str:
    return f"{name}{{{labels}{more}}}"


UP = series("up", labels=TARGET)
RUNNING = series("penstock_pipeline_running")
LAG = series("penstock_pipeline_lag_seconds", ',topic="orders"')
RESTARTS = series("penstock_pipeline_restarts_total", ',reason="spark"')
LOST = series("penstock_pipeline_lost_offsets_total")
REJECTS = series("penstock_pipeline_rejects_total", ',reason="malformed"')
RECORDS = series("penstock_pipeline_records_total")
MAINTENANCE = series("penstock_pipeline_maintenance_failures_total", ',table="shop.orders"')

CASES = {
    "PenstockPipelineDown": Case({UP: "1x2 0x10"}, {UP: "1x2 0x3 1x10"}, 9),
    "PenstockPipelineNotRunning": Case({RUNNING: "1x2 0x20"}, {RUNNING: "1x2 0x8 1x20"}, 15),
    "PenstockPipelineLag": Case({LAG: "700x30"}, {LAG: "590x30"}, 20),
    "PenstockPipelineRestarts": Case({RESTARTS: "0+1x60"}, {RESTARTS: "0x50 1x10"}, 58),
    "PenstockPipelineLostOffsets": Case({LOST: "0x5 9x20"}, {LOST: "9x25"}, 8),
    "PenstockPipelineRejects": Case(
        {REJECTS: "0+2x60", RECORDS: "0+100x60"},
        {REJECTS: "0+1x60", RECORDS: "0+200x60"},
        50,
    ),
    "PenstockPipelineMaintenance": Case({MAINTENANCE: "0+1x60"}, {MAINTENANCE: "0x30 2x30"}, 58),
}
