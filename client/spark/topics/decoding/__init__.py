"""Pure: decode the bytes of Fetch responses into the columns of Arrow batches, with numpy and pyarrow and without a
Python object per record.

May import kraft.wire and kraft.seam. Use it through `kraft.client.spark.topics.arrow_records`.
"""
